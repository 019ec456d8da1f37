"""The report of a run as a folder of pages."""
