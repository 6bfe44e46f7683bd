"""Runs the programs of records with the arrays of any library."""
