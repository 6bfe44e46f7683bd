"""Recognises kinds of files by the endings of their names, in upper or lower case."""

KERAS = (".keras", ".h5", ".hdf5")
NOTEBOOK = (".ipynb",)
PYTHON = (".py",)


def ending_of(path, endings):
    """Returns the one of the `endings`, all in lower case, that a path has; "" if it has none."""
    return next((each for each in endings if path.lower().endswith(each)), "")
