"""The ``known:`` entries of the spec files: reviewed against a run, and rewritten from one."""
