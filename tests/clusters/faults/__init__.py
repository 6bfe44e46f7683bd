"""Helpers that kill trainings and check that no state is lost."""
