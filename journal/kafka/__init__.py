"""Kafka access: clients, topics, control rows, and the embedded Apache Kafka."""
