"""The parts of recorded rules: the optimizers as data; see `legacy-opt docs recorded_rules`."""

from __future__ import annotations

from typing import Any, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

from legacy_opt.core.count_layout import CountLayout

# Pickled records may name Change and Node here.
from legacy_opt.programs.program import (  # noqa: F401
    ELEMENT,
    MATRIX_COLUMN,
    MATRIX_ROW,
    ROW,
    SCALAR,
    Change,
    Function,
    Input,
    Node,
    Program,
    level_in_program,
)

FORMAT, VERSION = "legacy-opt rule", 2

# How a slot is stored: one value for each row, element, …; or the decay counts of AdagradDecay.
LAYOUTS = (SCALAR, ROW, MATRIX_ROW, MATRIX_COLUMN, ELEMENT, *CountLayout.KINDS)
# For the global norm, rows of a sparse gradient with the same id are separate, or are summed first.
ROWS, SUMMED_ROWS = "rows", "summed_rows"
CLIPPINGS = (ROWS, SUMMED_ROWS)
CLIP_NORM = "clip_norm"

Number = Union[bool, int, float]


class RecordError(ValueError):
    """A record cannot be read or made, or does not fit. The message says why.

    Example::

        from legacy_opt import recorded

        try:
            recorded.loads("{}")
        except recorded.RecordError as error:
            print(error)
    """


class Slot(NamedTuple):
    """A slot, the state of a variable."""

    layout: str  # one of `LAYOUTS`
    dtype: str  # the name of the dtype
    initial: Number  # the initial value of all elements
    suffix: str  # in a checkpoint, the slot's name is the variable's name, "/" and this suffix


class Group(NamedTuple):
    """Variables that are updated in the same way.

    Attributes:
      variables: a dict from the names of the variables to their shapes; None means all variables
        whose rank is in `ranks`.
      ranks: the lowest and the highest rank; a highest rank of None means no limit. None if there
        are `variables`.
      slots: a dict from names to `Slot`.
      dense: the `Program` for dense gradients; if there is none, a text that says why.
      sparse: the same for sparse gradients.
      first: a program that runs before `sparse`, and changes the variable in the rows of the
        gradient; or None. It decays the weights of these rows if `sparse` updates all rows.
    """

    variables: Optional[Mapping[str, Tuple[int, ...]]]
    ranks: Optional[Tuple[int, Optional[int]]]
    slots: Mapping[str, Slot]
    dense: Union[Program, str]
    sparse: Union[Program, str]
    first: Optional[Program] = None

    @property
    def programs(self) -> Sequence[Program]:
        programs = self.dense, self.sparse, self.first
        return [each for each in programs if isinstance(each, Program)]


class Scalar(NamedTuple):
    """A hyperparameter, or a shared (non-slot) variable such as a power of beta."""

    dtype: str  # the name of the dtype
    value: Optional[Number]  # initial; None for a hyperparameter that was a tensor or function


class Record(NamedTuple):
    """A recorded rule.

    Example::

        from legacy_opt import recorded

        record = recorded.load("LazyAdamOptimizer")  # of the catalogue
        print(sorted(record.hyperparameters))  # ['beta1', 'beta2', 'epsilon', 'learning_rate']

    Attributes:
      optimizer: the name of the optimizer's class.
      dtype: the dtype of the variables.
      global_step: the dtype of the global step; None if the rule does not read it.
      hyperparameters: a dict from names to `Scalar`: hyperparameters that may get other values.
      shared: a dict from names of shared (non-slot) variables to `Scalar`.
      before: the `Function` that computes the scalars of a training step.
      after: the `Function` that computes the new values of shared variables, after all updates.
      groups: the groups of variables.
      clipping: one of `CLIPPINGS` if gradients are first clipped by their global norm, else None.
        The limit of the norm is the hyperparameter "clip_norm".
      fixed: a dict from names to `Scalar`: hyperparameters that the record does not follow, because
        their values decided something in Python during the recording, or nothing reads them.
      nonzero: the names of hyperparameters of which only the sign decided something in Python.
        Other values must have the same sign, and cannot be 0.
      initial: a dict from names of slots and shared variables to the hyperparameter that is the
        initial value.
    """

    optimizer: str
    dtype: str
    global_step: Optional[str]
    hyperparameters: Mapping[str, Scalar]
    shared: Mapping[str, Scalar]
    before: Function
    after: Function
    groups: Tuple[Group, ...]
    clipping: Optional[str] = None
    fixed: Mapping[str, Scalar] = {}
    nonzero: Tuple[str, ...] = ()
    initial: Mapping[str, str] = {}

    def group_of(self, name: str, shape: Sequence[int], dtype: Optional[Any] = None) -> Group:
        """Returns the group of a variable.

        Args:
          name: the name of the variable.
          shape: its shape.
          dtype: its dtype; None if it is checked elsewhere.

        Raises:
          RecordError: no group fits the name, shape and dtype.
        """
        if dtype is not None and dtype != self.dtype:
            raise RecordError(f"{name!r} has the dtype {dtype}, but the record is for {self.dtype}")
        shape = tuple(shape)
        for group in self.groups:
            if group.ranks is not None:
                low, high = group.ranks
                if low <= len(shape) and (high is None or len(shape) <= high):
                    return group
            elif group.variables is not None and name in group.variables:
                recorded = group.variables[name]
                if recorded != shape:
                    raise RecordError(
                        f"{name!r} has the shape {list(shape)}, but the record was made for the "
                        f"shape {list(recorded)}"
                    )
                return group
        known = [each for group in self.groups for each in group.variables or ()]
        hint = f"; the record has {sorted(known)[:5]}" if known else ""
        raise RecordError(
            f"the record of {self.optimizer} has no update for a variable {name!r} with "
            f"{len(shape)} axes{hint}"
        )

    @property
    def starts(self) -> Sequence[Tuple[str, Optional[Number], str]]:
        """The name, the initial value and the dtype of each shared variable and slot."""
        found = [(name, each.value, each.dtype) for name, each in self.shared.items()]
        for group in self.groups:
            found += [(name, each.initial, each.dtype) for name, each in group.slots.items()]
        return found

    def with_starts(self, values: Mapping[str, Any]) -> Record:
        """Returns a record with other initial values, by names of slots and shared variables."""

        def changed(parts: Mapping[str, Any], field: str) -> Any:
            return {
                name: each._replace(**{field: values[name]}) if name in values else each
                for name, each in parts.items()
            }

        groups = tuple(each._replace(slots=changed(each.slots, "initial")) for each in self.groups)
        return self._replace(shared=changed(self.shared, "value"), groups=groups)

    def in_dtype(self, dtype: str) -> Record:
        """Returns the rule for variables of another dtype, "float32" or "float64".

        Values of the record's dtype get the new dtype; values of other dtypes, such as steps, keep
        theirs. A rule of float32 whose `1 - beta` is a constant, for one value of beta (see
        `legacy_opt.core.hyperparameters.complement`), always computes it in float64.
        """
        if dtype == self.dtype:
            return self

        def changed(part: Any) -> Any:
            if isinstance(part, (Function, Program)):
                nodes = [_computed(part.nodes, each) for each in part.nodes]
                part = part._replace(nodes=tuple(nodes))
            if isinstance(part, dict):
                return {name: changed(each) for name, each in part.items()}
            if isinstance(part, tuple):
                parts = map(changed, part)
                part = part._make(parts) if hasattr(part, "_make") else tuple(parts)
            has_dtype = "dtype" in getattr(part, "_fields", ()) and part.dtype == self.dtype
            return part._replace(dtype=dtype) if has_dtype else part

        return changed(self)

    def without_values(self) -> Record:
        """Returns the record without values of hyperparameters and initial values."""
        hyper = {name: each._replace(value=None) for name, each in self.hyperparameters.items()}
        rule = self.with_starts({name: None for name, _, _ in self.starts})
        return rule._replace(hyperparameters=hyper, fixed={}, nonzero=(), initial={})


def _computed(nodes: Sequence[Node], node: Node) -> Node:
    """Returns `1 - value` instead of a constant that has other last digits of float32."""
    if node.operation != "Select":
        return node
    condition, constant, difference = (nodes[i] for i in node.inputs)
    if (condition.operation, constant.operation, difference.operation) != ("Equal", "Const", "Sub"):
        return node
    one, value, compared, known = (nodes[i].detail for i in (*difference.inputs, *condition.inputs))
    is_same = one == 1.0 and value == compared and isinstance(known, float)
    return difference if is_same and abs(1.0 - known - constant.detail) < 2.0**-24 else node


def slot_inputs(slots: Mapping[str, Slot], by_rows: bool) -> Sequence[Input]:
    """Returns the slots of a group as inputs of a program with this `by_rows`."""
    return [
        Input(name, level_in_program(slot.layout, by_rows), slot.dtype, is_slot=True)
        for name, slot in slots.items()
    ]
