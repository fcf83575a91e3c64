"""The worker: it applies the WAL to the tables, shard by shard."""
