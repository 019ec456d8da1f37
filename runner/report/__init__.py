"""Reports: pure consumers of events. None of them runs anything, and none imports torch."""
