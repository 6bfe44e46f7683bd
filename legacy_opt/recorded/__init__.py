"""Recorded rules: the updates of optimizers as data, which train without TensorFlow.

`record` makes a record of an optimizer and needs TensorFlow; nothing else here does. `rule` writes
a record, with the functions of the module `formulas`. The targets are the modules `numpy`, `torch`,
`jax`, `optax` and `keras` of this package.
`legacy-opt docs recorded_rules` describes the format.
"""

from __future__ import annotations

from typing import Any, Optional

from legacy_opt.recorded.formulas import rule
from legacy_opt.recorded.reading import catalogue, load, loads
from legacy_opt.recorded.records import Record, RecordError
from legacy_opt.recorded.writing import dumps, save

__all__ = ["Record", "RecordError", "catalogue", "dumps", "load", "loads", "record", "rule", "save"]


def record(
    optimizer: Any,
    variables: Optional[Any] = None,
    dtype: Any = "float32",
    decay_var_list: Optional[Any] = None,
) -> Record:
    """Records the rule of an optimizer.

    Example::

        from legacy_opt import recorded

        optimizer = legacy_opt.LAMBOptimizer(0.01, exclude_from_weight_decay=["bias"])
        record = recorded.record(optimizer, {"dense/kernel": [3, 2], "dense/bias": [2]})
        recorded.save(record, "lamb.json")

    Args:
      optimizer: an optimizer that has native kernels (`legacy-opt docs native`): of this package,
        of TensorFlow, or a `legacy_opt.RuleOptimizer`. It is not changed.
      variables: a dict from names of variables to their shapes, if the optimizer treats variables
        by their names or shapes. The record is then for these variables alone. By default, it is
        for variables of any name and shape.
      dtype: the dtype of the variables, "float32" or "float64".
      decay_var_list: the names among `variables` that are decayed; None for all. Only for
        optimizers with decoupled weight decay, whose `minimize` takes such a list.

    Raises:
      RecordError: the optimizer cannot be recorded. The message says why.
    """
    from legacy_opt.recorded import recording

    return recording.record(optimizer, variables, dtype, decay_var_list)
