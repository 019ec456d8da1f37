"""The engine on a Ray cluster: control, the driver process, and an actor on every node."""
