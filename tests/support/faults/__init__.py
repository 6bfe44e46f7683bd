"""Trainings that are killed, and checks of what they lost."""
