"""The command lines of the programs that kill processes."""

import argparse
import random


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows descriptions as they are, and the defaults of options."""


def parser_of(description):
    """Returns a parser of a program that kills processes; its option --seed is random."""
    parser = argparse.ArgumentParser(description=description, formatter_class=_Help)
    seed = random.randrange(1 << 32)
    parser.add_argument("--seed", type=int, default=seed, help="seed of what is random")
    return parser
