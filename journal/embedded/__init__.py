"""An Apache Kafka that this package downloads, starts and stops by itself."""
