"""What is installed in this environment."""


def has_keras_2():
    """Returns whether `versions.keras_2` finds Keras 2, which needs TensorFlow."""
    try:
        from legacy_opt import versions

        versions.keras_2()
    except ImportError:
        return False
    return True
