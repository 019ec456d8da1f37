"""Two observations to findings, and whether the comparison can be believed."""
