"""Producers with the names and calls of other clients, built on this one; one module per client, named after it."""
