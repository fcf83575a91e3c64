"""A journal in a local RocksDB, without Kafka."""
