"""What both halves agree on: jobs, records, findings, oracles, settings. Frozen values that write and read their own
JSON.

It imports the standard library alone. Control and the worker import it, and it is the only package that both import.
"""
