"""One model and its inputs: loaded, compiled by a backend, run, and everything that a user can see recorded."""
