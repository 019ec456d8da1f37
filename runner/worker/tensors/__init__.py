"""Elements of tensors: planes, bytes and tolerances. Entrance: ``elements``."""
