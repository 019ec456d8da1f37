"""Draws chains of operators by a seed, and tries cases out: the worker's part of ``runner generate``."""
