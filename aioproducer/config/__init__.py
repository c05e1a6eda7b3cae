"""The producer's configs: their table, how values are read, and what they mean to the parts of the producer."""
