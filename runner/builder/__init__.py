"""Case to Python source, without torch."""
