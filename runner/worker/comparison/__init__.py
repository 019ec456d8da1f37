"""Tensors against tensors, without knowledge of runs. Entrance: ``compare``."""
