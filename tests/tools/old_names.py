"""Prints how many old names have a replacement, for the first page of the site.

python -m tests.tools.old_names
"""

from legacy_opt.compat.old_programs import old_names


def replaced():
    """Returns the number of old names of TensorFlow 1 in the table that have a replacement."""
    return sum(fate.now is not None for fate in old_names.FATES.values())


if __name__ == "__main__":
    print(replaced())
