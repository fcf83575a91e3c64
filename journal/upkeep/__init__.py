"""What operators do to a journal's topics: trims, repairs, and why a shard has stopped."""
