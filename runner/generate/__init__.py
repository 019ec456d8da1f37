"""Cases drawn by a seed: workers draw them and try them out, and files hold those that are valid."""
