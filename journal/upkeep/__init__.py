"""What operators do to topics: trims, repairs and skips."""
