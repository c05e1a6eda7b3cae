"""Speed of aioproducer beside the other Python clients; ``python -m benchmarks`` runs all of it."""
