"""Agents: programs that are told what a shard did."""
