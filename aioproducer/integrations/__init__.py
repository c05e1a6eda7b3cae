"""The producer in other people's frameworks; one module for each, named like it, which needs it installed."""
