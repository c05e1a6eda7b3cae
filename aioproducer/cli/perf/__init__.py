"""``aioproducer perf``: load on a topic, measured."""
