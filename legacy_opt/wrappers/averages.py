"""The base class of wrappers that average variables, and the Saver that swaps the averages in."""

from __future__ import annotations

from typing import Any, Dict, Iterable, List, Mapping, Optional, Union

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Saver, Variable
from legacy_opt.core.variable_lists import is_partitioned
from legacy_opt.wrappers.shadows import ShadowOptimizer

v1 = tf.compat.v1


class AveragingOptimizer(ShadowOptimizer):
    """Base class of wrappers whose shadows are averages of the variables."""

    _collection = v1.GraphKeys.MOVING_AVERAGE_VARIABLES

    def average(self, variable: Variable) -> Optional[Variable]:
        """Returns the average of a variable, or None if the average does not exist yet."""
        return self._shadow_of(variable)

    def swapping_saver(
        self,
        var_list: Union[Iterable[Variable], Mapping[str, Variable], None] = None,
        name: str = "swapping_saver",
        **kwargs: Any,
    ) -> Saver:
        """Returns a Saver that swaps the names of each variable and its average.

        The Saver swaps the names when it saves and when it restores, so that training continues
        with the same values. Use this Saver for training, and an ordinary Saver for evaluation.
        Call this method after all variables have been created.

        Args:
          var_list: the variables to save: a list, or a dict from names in the checkpoint to
            variables; None means all global variables.
          name: the name of the Saver's operations.
          **kwargs: other arguments of `tf.compat.v1.train.Saver`.

        Returns:
          A `tf.compat.v1.train.Saver`.

        Raises:
          RuntimeError: the averages have not been created yet in this graph; or the method is
            called eagerly or in a function, where TensorFlow 1's Savers do not work.
          TypeError: an item of `var_list` is not a variable.
          ValueError: `var_list` has a variable without its average, or an average without its
            variable.
        """
        if versions.building() not in (versions.GRAPH, versions.CONTROL_FLOW):
            raise RuntimeError(
                "swapping_saver creates a Saver for a TF1 graph. In eager code assign "
                "optimizer.average(variable) to the variable before saving it."
            )
        partners = {}  # {name: the variable that is saved under this name}
        for variable in v1.moving_average_variables():
            average = self.average(variable)
            if average is not None:
                for one, other in (variable, average), (average, variable):
                    partners[_op_name(one)] = versions.distributed_variable(other)
        if not partners:
            raise RuntimeError(
                "swapping_saver must be called after minimize() or apply_gradients(), which "
                "create the averages."
            )
        entries = _by_name(v1.global_variables() if var_list is None else var_list)
        saved = {_op_name(part) for parts in entries.values() for part in _as_list(parts)}
        for op_name in sorted(saved.intersection(partners)):
            partner = _op_name(partners[op_name])
            if partner not in saved:
                raise ValueError(
                    f"var_list of swapping_saver has {op_name!r}, but not {partner!r}, "
                    "with which it is swapped. Pass both or neither."
                )
        content = {}
        for key, parts in entries.items():
            saveables = [
                versions.saveable(key, partners.get(_op_name(part), part))
                for part in _as_list(parts)
            ]
            content[key] = saveables if isinstance(parts, list) else saveables[0]
        return v1.train.Saver(content, name=name, **kwargs)


def _by_name(var_list: Any) -> Dict[str, Any]:
    """Returns a dict from names in a checkpoint to variables or lists of partitions."""
    if isinstance(var_list, dict):
        return {key: _partitions_or_variable(value) for key, value in var_list.items()}
    by_name = {}
    for each in var_list:
        if not hasattr(each, "name"):
            raise TypeError(f"var_list of swapping_saver has {each!r}, which is not a variable.")
        part = versions.part_of(each)
        if part is not None:
            by_name.setdefault(part.full_name, []).append(each)
        elif isinstance(_partitions_or_variable(each), list):
            by_name[each.name] = list(each)
        else:
            by_name[_op_name(each) or each.name] = each
    return by_name


def _partitions_or_variable(variable: Any) -> Any:
    if isinstance(variable, (list, tuple)) or is_partitioned(variable):
        return list(variable)
    return variable


def _as_list(parts: Any) -> List[Any]:
    return parts if isinstance(parts, list) else [parts]


def _op_name(variable: Any) -> Any:
    """Returns the name of a variable in the graph, or None for other objects in `var_list`."""
    if not hasattr(variable, "read_value"):
        return None
    # `op` of a distributed variable would be the operation of the replica's own component.
    return versions.distributed_variable(variable).name.rsplit(":", 1)[0]
