"""What Spark keeps in files."""
