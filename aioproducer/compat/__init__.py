"""Producers of other clients, by their own names and calls, on this one; a module for each client, named like it."""
