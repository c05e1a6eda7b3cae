"""The producer's configs: the table, how values are parsed, and their meaning for the parts of the producer."""
