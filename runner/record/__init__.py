"""What a run leaves: typed events, the journal, its schema and signature, and the folder of runs."""
