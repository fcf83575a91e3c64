"""How tests run Kafka and Spark."""

from __future__ import annotations

JVM_OPTIONS = ("-XX:TieredStopAtLevel=1",)
"""A broker, or a Spark, is started with half of the work: in tests they start often, and never run for long."""
