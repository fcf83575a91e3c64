"""The journal: wire format, engine, writer, replica, store. Knows nothing of Faust or Spark."""
