"""Types for argparse, shared by the examples."""

import argparse


def positive_int(text):
    """argparse type: an int of at least 1."""
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("%r is not at least 1" % text)
    return value


def positive_float(text):
    """argparse type: a float above 0."""
    value = float(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("%r is not above 0" % text)
    return value


def decay_rate(text):
    """argparse type: a float between 0 and 1, both excluded."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("%r is not between 0 and 1" % text)
    return value
