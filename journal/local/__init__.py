"""A journal in a local file, without Kafka."""
