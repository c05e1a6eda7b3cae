"""An Apache Kafka producer for asyncio."""
