"""An Apache Kafka for tests and trials: this package downloads it, and starts and stops its brokers."""
