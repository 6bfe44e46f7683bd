"""Estimators on every TensorFlow: `from legacy_opt.compat import estimator`.

The module has the names of `tf.compat.v1.estimator` in TensorFlow 2.15: `Estimator`, `RunConfig`,
`EstimatorSpec`, `DNNClassifier`, `train_and_evaluate` and so on. Up to TensorFlow 2.15 they are
TensorFlow's own. Newer versions need two packages, which the error message names if they are
missing. See docs/estimators.md.
"""

from __future__ import annotations

from typing import Any, List

from legacy_opt import versions

# For tools, the names are unknown: they depend on the installed TensorFlow.
__all__: List[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # importlib asks for `__path__`
        raise AttributeError(name)
    return getattr(versions.estimator(), name)


def __dir__() -> List[str]:
    return dir(versions.estimator())
