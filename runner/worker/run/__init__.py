"""One job to one record. Entrance: ``job``."""
