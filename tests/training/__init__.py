"""Tests of Sessions, Estimators, hooks and the training helpers."""
