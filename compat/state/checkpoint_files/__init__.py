"""Reads and writes checkpoint files.

The package imports neither Keras nor optimizers. Callers need neither a graph nor a Session.
"""
