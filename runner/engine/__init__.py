"""Runs jobs in processes of their own, and keeps the journal of what happened."""
