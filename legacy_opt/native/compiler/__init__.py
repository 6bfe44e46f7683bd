"""Traces formulas to programs, and writes programs as C."""
