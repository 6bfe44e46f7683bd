"""Processes that train together, and that are killed."""
