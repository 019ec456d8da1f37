"""How long variants take to compile and to run: asking the worker, one process at a time, and what it said, as data."""
