"""YAML text to nodes that know their place, checked against the published schemas; and plain data back to YAML."""
