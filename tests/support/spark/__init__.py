"""A small Spark for tests, the journals that it reads, and jobs of it that are killed."""
