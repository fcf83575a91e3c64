"""Clients of Kafka, and the ports that they stand behind."""
