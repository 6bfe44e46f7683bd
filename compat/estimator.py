"""Estimators on every TensorFlow: `from legacy_opt.compat import estimator`.

The module has the names of `tf.compat.v1.estimator` in TensorFlow 2.15: `Estimator`, `RunConfig`,
`EstimatorSpec`, `DNNClassifier`, `train_and_evaluate` and so on. Up to TensorFlow 2.15, the classes
and functions are TensorFlow's own. On newer versions, they come from the package
tensorflow-estimator. If this package is missing, the first use of such a name raises an ImportError
with the pip command. Other names always raise an AttributeError. If the environment variable
TF_CONFIG is not a JSON object, the use of a name raises a ValueError. See `legacy-opt docs
estimators`.
"""

from __future__ import annotations

import json
import os
from typing import Any, List

from legacy_opt import versions
from legacy_opt.core.nearest_names import did_you_mean

from . import estimator_names

# Static tools cannot determine the names, because they depend on the installed packages.
__all__: List[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # Python looks up names like `__path__`
        raise AttributeError(name)
    try:
        value = getattr(versions.estimator(), name)
    except (AttributeError, ImportError) as error:
        if isinstance(error, ImportError) and name in estimator_names.NAMES:
            raise  # the message has the pip command
        hint = did_you_mean(name, __dir__())
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}") from error
    _check_tf_config()
    return value


def __dir__() -> List[str]:
    is_available = versions.estimator_problem() is None
    return dir(versions.estimator()) if is_available else [*estimator_names.NAMES]


def _check_tf_config() -> None:
    """Raises a ValueError if TF_CONFIG is not a JSON object."""
    # Otherwise Estimators raise the error of the JSON parser, which does not name TF_CONFIG.
    text = os.environ.get("TF_CONFIG", "{}")
    try:
        if isinstance(json.loads(text), dict):
            return
        problem = "it is not a JSON object"
    except ValueError as error:
        problem = str(error)
    raise ValueError(
        f"The environment variable TF_CONFIG is wrong ({problem}): {text!r}. It must look like "
        '{"cluster": {"chief": ["host:2222"], "ps": ["host:2223"]}, '
        '"task": {"type": "chief", "index": 0}}'
    )
