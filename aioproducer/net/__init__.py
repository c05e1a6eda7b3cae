"""Connections to the brokers, on asyncio streams."""
