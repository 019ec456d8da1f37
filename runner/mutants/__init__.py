"""Mutants of a compiler written in Python: which there are on the lines that a suite reaches, and which it kills."""
