"""Kept tables of messages and queues."""
