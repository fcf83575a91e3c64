"""What Spark reads of Kafka."""
