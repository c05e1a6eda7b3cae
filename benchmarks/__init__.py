"""Speed of aioproducer compared with other Python clients; ``python -m benchmarks`` runs everything."""
