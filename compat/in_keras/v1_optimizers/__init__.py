"""Inspects, copies and saves v1 optimizers for the bridges; does not depend on Keras."""
