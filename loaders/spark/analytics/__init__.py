"""Analytics of queues over time."""
