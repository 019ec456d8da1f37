"""A run: variants collected, planned, ordered, cut into shards, run until each has a verdict, and joined again."""
