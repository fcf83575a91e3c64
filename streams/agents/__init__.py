"""Agents: functions of a service that are called with what happened in a shard."""
