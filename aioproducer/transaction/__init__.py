"""The transactions of one producer: their states, their calls, and the requests to coordinators."""
