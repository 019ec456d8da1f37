"""What findings mean: stages, outcomes of jobs, explained differences, failure signatures, and the policy of
verdicts."""
