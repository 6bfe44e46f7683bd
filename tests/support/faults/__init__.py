"""A training that is killed, and what is left of it."""
