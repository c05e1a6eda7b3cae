"""The transactions of one producer: their states, calls, and requests to coordinators."""
