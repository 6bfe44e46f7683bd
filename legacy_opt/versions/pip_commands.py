"""The pip commands that install Keras 2 and Estimators beside a TensorFlow that lacks them."""

from __future__ import annotations

import tensorflow as tf

ESTIMATOR_VERSION = "2.15.0"  # the last release of tensorflow-estimator


def pip_command(*packages: str, version: str = tf.__version__) -> str:
    """Returns the command that installs packages, and keeps the TensorFlow of this version."""
    minor = ".".join(version.split(".")[:2])
    requirements = {
        "tensorflow-estimator": f"tensorflow-estimator=={ESTIMATOR_VERSION}",
        "tf-keras": f'"tf-keras=={minor}.*"',
    }
    # --no-deps, because tf-keras requires `tensorflow`, which pip would install over the files of
    # `tensorflow-cpu`, `tf-nightly` and other distributions. There are no other dependencies.
    command = " ".join(["pip install --no-deps", *(requirements[each] for each in packages)])
    if "-" in version:  # a release candidate or a nightly build, such as 2.22.0-rc0
        command += f"  # tf-keras {minor} is released after TensorFlow {minor}"
    return command
