"""Client telemetry: the producer's metrics for a cluster that asks for them (KIP-714)."""
