"""How far roundings move the numbers of a program: its float64 shadow, and perturbed runs.

Entrance: ``sensitivity``.
"""
