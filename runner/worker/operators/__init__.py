"""What torch leaves open to each of its operators, and which round nothing. Entrance: ``freedoms``."""
