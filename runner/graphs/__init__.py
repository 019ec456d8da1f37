"""Graphs that somebody else made, such as captured ones, as cases, spec files and an inventory."""
