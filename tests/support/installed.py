"""What is installed in this environment."""

from legacy_opt import versions


def has_keras_2():
    """Returns whether `versions.keras_2` finds Keras 2."""
    try:
        versions.keras_2()
    except ImportError:
        return False
    return True
