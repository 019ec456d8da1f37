"""The hunt: rounds of drawn cases are run, what is red is grouped by its signature, and one case of each new group is
reduced."""
