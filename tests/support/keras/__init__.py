"""Trainings with Keras."""
