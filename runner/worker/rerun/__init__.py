"""Further runs of a model, which say what else its results may be. Entrances: ``reference``, ``legal_runs``."""
