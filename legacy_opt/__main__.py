"""Makes `python -m legacy_opt` do the same as the command `legacy-opt`."""

import sys


def main() -> int:
    """Runs the command line of `legacy_opt.compat.cli` and returns its exit code."""
    from legacy_opt.compat import cli

    return cli.main()


if __name__ == "__main__":
    sys.exit(main())
