"""YAML text to frozen cases and variants, every value with its place in a file."""
