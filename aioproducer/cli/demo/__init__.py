"""``aioproducer demo``: a real data set into a real Kafka, read back and compared by another client."""
