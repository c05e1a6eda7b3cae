"""The producer in other frameworks and libraries: one module for each, named after it, which needs it installed."""
