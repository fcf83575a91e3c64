"""Clients of Kafka, and the protocols (ports) through which all other code uses them."""
