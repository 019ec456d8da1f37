"""Records what Dynamo hands to a backend, as graphs that control writes as cases. It runs in the user's own process."""
