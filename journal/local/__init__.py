"""A journal in a local RocksDB instead of Kafka, for tests and for a single machine."""
