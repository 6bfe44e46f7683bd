"""Training in several processes, some of which are killed."""
