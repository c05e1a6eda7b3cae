"""The producer in other frameworks and libraries: one module each, named after the library, which must be installed."""
