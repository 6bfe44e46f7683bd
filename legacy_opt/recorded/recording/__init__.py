"""Records the rules of optimizers. Needs TensorFlow.

A record has the nodes from which native kernels are compiled. Therefore it has the same bytes on
each TensorFlow, and its results have the bits of native kernels.
"""

from __future__ import annotations

import copy
from typing import Any, Collection, Dict, List, Mapping, Optional, Sequence, Tuple, TypeVar, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks, contract
from legacy_opt.core.global_step import NewStep
from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import RowSlot, ScalarSlot
from legacy_opt.core.types import V1Optimizer, Variable
from legacy_opt.native.updates.acceleration import accelerate
from legacy_opt.programs.formulas import level_of_slot
from legacy_opt.programs.operations import DTYPES, FLOATS
from legacy_opt.programs.optimizers import formulas_of, may_have_kernels
from legacy_opt.programs.program import Function, Program, UnsupportedError
from legacy_opt.programs.scalars import number
from legacy_opt.programs.trace import trace_scalars
from legacy_opt.programs.weight_decay import DecayedFormulas
from legacy_opt.recorded import records
from legacy_opt.recorded.reading.checks import Reader
from legacy_opt.recorded.recording import followed
from legacy_opt.recorded.recording.constructors import Constructor
from legacy_opt.recorded.records import Group, Record, RecordError, Scalar, Slot
from legacy_opt.wrappers.gradient_clipping import ClipByGlobalNormOptimizer

v1 = tf.compat.v1
# A shape for each number of axes; the last stands for larger numbers of axes, too.
_SHAPES: Sequence[Sequence[int]] = ([], [3], [3, 4], [2, 3, 4])
# Arguments of methods that get a variable or its name.
_OF_VARIABLES = {"variable", "var", "handle", "variable_name", "param_name", "param"}
_Traced = TypeVar("_Traced", Program, Function)
_NO_ROWS = "a variable without axes has no rows"


def record(
    optimizer: V1Optimizer,
    variables: Optional[Mapping[str, Sequence[int]]],
    dtype: Any,
    decay_var_list: Optional[Collection[str]] = None,
) -> Record:
    """See `legacy_opt.recorded.record`."""
    if not isinstance(optimizer, V1Optimizer):
        raise RecordError(
            f"record takes a tf.compat.v1.train.Optimizer, got {optimizer!r} of type "
            f"{type(optimizer).__name__}"
        )
    contract.check("record", optimizer, RecordError)
    if type(optimizer) is ClipByGlobalNormOptimizer:
        inner = record(optimizer.wrapped[0], variables, dtype, decay_var_list)
        return _with_clipping(inner, optimizer)
    name = type(optimizer).__name__
    dtype = tf.as_dtype(dtype)
    if dtype.name not in FLOATS:
        raise RecordError(f"dtype: records are for {' and '.join(FLOATS)}, got {dtype.name}")
    if variables is not None and not variables:
        raise RecordError("variables is empty: pass None for variables of any name and shape")
    reason = _why_names_matter(optimizer)
    if variables is None and reason:
        raise RecordError(
            f"{name} may treat variables by their names, because of {reason}: pass variables, a "
            "dict from names to shapes"
        )
    _check_decay(optimizer, variables, decay_var_list)
    shapes = variables or {f"rank_{len(shape)}": shape for shape in _SHAPES}

    def traced(changed: Mapping[str, Any]) -> Record:
        """Records a variable of each group again, with other values of hyperparameters."""
        some = {key: shapes[key] for key in map(_variable_of, found.groups)}
        with tf.Graph().as_default():
            values = constructor.attributes({attributes[key]: changed[key] for key in changed})
            copied = _copy(optimizer, values)
            other = _Recorder(copied, some, dtype, decay_var_list, has_numbers=False)
            return other.record(name, tuple(other.groups()))

    try:
        with tf.Graph().as_default():
            recorder = _Recorder(_copy(optimizer), shapes, dtype, decay_var_list)
            groups = recorder.groups()
            joined = _by_name(groups) if variables else _by_rank(groups)
            found = recorder.record(name, tuple(joined))
            hyperparameters = recorder.given.hyperparameters.items()
            attributes = {key: attribute for key, (_, _, attribute) in hyperparameters}
            constructor = Constructor(optimizer, attributes.values())
        unknown = [key for key, each in attributes.items() if each in constructor.unknown]
        is_quick = not contract.is_of_user(type(optimizer))
        found = followed.found(found, traced, unknown, is_quick)
        if variables is None:
            _check_other_variables(optimizer, dtype, groups)
    # Not only this module raises these errors, but also the optimizer's own code.
    except (TypeError, ValueError, tf.errors.OpError) as error:
        raise RecordError(f"{name} cannot be recorded: {error}") from error
    return found


def _with_clipping(found: Record, optimizer: ClipByGlobalNormOptimizer) -> Record:
    """Returns a record with clipping by the global norm."""
    if records.CLIP_NORM in {*found.hyperparameters, *found.shared} or found.clipping:
        raise RecordError(
            f"{found.optimizer} cannot be recorded: it has a hyperparameter {records.CLIP_NORM!r} "
            "of its own"
        )
    limit = Scalar(found.dtype, number(optimizer._clip_norm, found.dtype))
    return found._replace(
        hyperparameters={**found.hyperparameters, records.CLIP_NORM: limit},
        clipping=records.SUMMED_ROWS if optimizer._sum_duplicates else records.ROWS,
    )


def _check_decay(
    optimizer: V1Optimizer,
    variables: Optional[Mapping[str, Any]],
    decay_var_list: Optional[Collection[str]],
) -> None:
    """Raises a RecordError if the optimizer or the variables do not fit `decay_var_list`."""
    if decay_var_list is None:
        return
    if not hasattr(optimizer, "decaying_only"):
        raise RecordError(f"decay_var_list: {type(optimizer).__name__} has no such list")
    unknown = sorted(set(decay_var_list) - set(variables or ()))
    if unknown or isinstance(decay_var_list, str):
        raise RecordError(f"decay_var_list: pass names of `variables`, got {decay_var_list!r}")


def _check_other_variables(optimizer: V1Optimizer, dtype: Any, groups: Sequence[Group]) -> None:
    """Raises an UnsupportedError if a variable of another shape does not fit the groups."""
    probes = [[[size + 2 for size in shape] for shape in _SHAPES]]
    if contract.is_of_user(type(optimizer)):
        probes.append([[1] * len(shape) for shape in _SHAPES] + [[2, 3, 2, 3, 2]])
    for shapes in probes:
        named = {f"rank_{len(shape)}": shape for shape in shapes}
        with tf.Graph().as_default():
            found = _Recorder(_copy(optimizer), named, dtype).groups()
        for group, shape in zip(found, shapes):
            expected = groups[min(len(shape), len(groups) - 1)]
            if group[2:] != expected[2:]:  # all but `variables` and `ranks`
                raise UnsupportedError(
                    "the rule depends on the shape of the variable: pass variables, a dict from "
                    "names to shapes"
                )


def _why_names_matter(optimizer: V1Optimizer) -> Optional[str]:
    """Returns the method or attribute by which an optimizer may look at names of variables."""
    classes = type(optimizer).__mro__
    for owner in (optimizer, *filter(contract.is_of_user, classes)):
        for name in vars(owner):  # an override may give its arguments other names
            codes = [getattr(vars(each).get(name), "__code__", None) for each in classes]
            names = [each.co_varnames[: each.co_argcount] for each in codes if each]
            if name == "_create_slots" or any(map(_OF_VARIABLES.intersection, names)):
                return f"its method {name}"
    for name, value in vars(optimizer).items():
        texts = value if isinstance(value, (list, tuple, set, frozenset)) else ()
        is_of_hyperparameters = name in ("_hyperparameter_names", "full_precision")
        if any(isinstance(each, str) for each in texts) and not is_of_hyperparameters:
            return name
    return None


def _variable_of(group: Group) -> str:
    """Returns the name of one of the variables for which a group was recorded."""
    if group.variables:
        return next(iter(group.variables))
    _, high = group.ranks or (0, None)
    return f"rank_{len(_SHAPES) - 1 if high is None else high}"


def _copy(optimizer: V1Optimizer, changed: Mapping[str, Any] = {}) -> V1Optimizer:
    """Returns a copy that may have native kernels, with no slots and some changed attributes.

    Raises an UnsupportedError if the optimizer has no rule.
    """
    if getattr(optimizer, "wrapped", ()):
        raise UnsupportedError("it is a wrapper: record the optimizer inside it")
    clean = copy.copy(optimizer)
    vars(clean).update(_slots={}, _non_slot_dict={}, _deferred_slot_restorations={}, **changed)
    if hasattr(clean, "_decays_at_zero"):
        clean._decays_at_zero = True  # so that the record follows a rate of 0, too
    step = getattr(clean, "_global_step", None)
    has_step = argument_checks.is_tensor_like(step)
    new_step = _new_step(step.dtype.base_dtype if has_step else tf.int64)
    if has_step:
        clean._global_step = new_step
    for attribute, value in vars(clean).items():
        # A tensor belongs to another graph. As a hyperparameter, it has no value in the record.
        is_scalar = argument_checks.is_tensor_like(value) and value.shape.rank in (0, None)
        if is_scalar and attribute != "_global_step":
            setattr(clean, attribute, v1.placeholder(value.dtype.base_dtype, []))
        elif callable(value) and not isinstance(clean, RuleOptimizer):  # a hyperparameter, too
            setattr(clean, attribute, lambda: v1.placeholder(tf.float32, []))
    if isinstance(clean, RuleOptimizer):
        clean._new_steps = NewStep()
    if not may_have_kernels(type(clean)):
        try:
            clean = accelerate(clean)
        except TypeError as error:
            raise UnsupportedError(str(error)) from None
    return clean


def _new_step(dtype: Any) -> Variable:
    """Creates the global step of the default graph."""
    return v1.get_variable(
        "global_step",
        [],
        dtype,
        v1.zeros_initializer(dtype),
        trainable=False,
        use_resource=True,
        collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
    )


class _Recorder:
    """Records an optimizer in the default graph."""

    def __init__(
        self,
        optimizer: V1Optimizer,
        shapes: Mapping[str, Sequence[int]],
        dtype: Any,
        decay_var_list: Optional[Collection[str]] = None,
        has_numbers: bool = True,
    ) -> None:
        self._optimizer = optimizer
        self._dtype = dtype
        self._variables = {
            name: v1.get_variable(name, shape, dtype, use_resource=True)
            for name, shape in shapes.items()
        }
        optimizer._create_slots(list(self._variables.values()))
        if not has_numbers:  # the nodes do not contain numbers that `unrounded` computes in Python
            optimizer._given_value = lambda name: optimizer._rule_step.tensors[name]
        optimizer._prepare()
        self._formulas = formulas_of(optimizer)
        self.given = self._formulas.given()
        if not has_numbers and isinstance(self._formulas, DecayedFormulas):
            optimizer._weight_decay = optimizer._weight_decay_tensor
        self._decay_var_list = decay_var_list
        self._initial = self._initial_values()

    def _initial_values(self) -> Dict[str, np.ndarray]:
        """Returns the initial values of all slots and shared variables, by their names."""
        trained = {variable.op.name for variable in self._variables.values()}
        found = [each for each in v1.global_variables() if each.op.name not in trained]
        with v1.Session() as session:
            session.run(v1.variables_initializer(found))
            return dict(zip([each.op.name for each in found], session.run(found)))

    def record(self, name: str, groups: Tuple[Group, ...]) -> Record:
        formulas, given = self._formulas, self.given
        tensors = {key: tensor for key, (tensor, _, _) in given.hyperparameters.items()}
        tensors.update(given.shared)
        dtypes = {key: each.dtype.base_dtype.name for key, each in tensors.items()}
        if given.global_step is not None:
            dtypes["global_step"] = given.global_step
        before = trace_scalars(dtypes, lambda scalars: formulas.before(scalars, self._dtype))
        after = trace_scalars(dtypes, formulas.after)
        hyperparameters = {
            key: Scalar(dtypes[key], number(value, dtypes[key]))
            for key, (_, value, _) in given.hyperparameters.items()
        }
        shared = {
            key: Scalar(dtypes[key], _only_value(key, self._initial[variable.op.name]))
            for key, variable in given.shared.items()
        }
        return Record(
            optimizer=name,
            dtype=self._dtype.name,
            global_step=given.global_step,
            hyperparameters=hyperparameters,
            shared=shared,
            before=_checked(before),
            after=_checked(after),
            groups=groups,
        )

    def groups(self) -> List[Group]:
        if self._decay_var_list is None:
            return self._groups()
        known = [name for name in self._decay_var_list if name in self._variables]
        # An empty list would mean all variables, so it gets a variable that is not trained.
        decayed = [self._variables[name] for name in known] or [v1.Variable(0.0)]
        with self._optimizer.decaying_only(decayed):
            return self._groups()

    def _groups(self) -> List[Group]:
        found = []
        for name, variable in self._variables.items():
            rank = variable.shape.rank
            sparse = self._program(variable, is_sparse=True) if rank else _NO_ROWS
            dense = self._program(variable, is_sparse=False)
            if isinstance(dense, str) and isinstance(sparse, str):
                raise UnsupportedError(dense)
            slots = self._slots(variable)
            first = None
            if rank and self._formulas.must_wait(variable):
                first = _checked(self._formulas.decay_of_rows(variable).program())
            variables = {name: tuple(variable.shape.as_list())}
            found.append(Group(variables, None, slots, dense, sparse, first))
        return found

    def _program(self, variable: Variable, is_sparse: bool) -> Union[Program, str]:
        """Returns a program; if the optimizer has none, the reason."""
        try:
            return _checked(self._formulas.formula_of(variable, is_sparse).program())
        except UnsupportedError as error:
            return str(error)

    def _slots(self, variable: Variable) -> Dict[str, Slot]:
        slots = {}
        for name, layout in self._formulas.slot_layouts(variable).items():
            slot = self._optimizer.get_slot(variable, name)
            slots[name] = Slot(
                layout=_layout_name(layout, variable),
                dtype=slot.dtype.base_dtype.name,
                initial=_only_value(slot.op.name, self._initial[slot.op.name]),
                suffix=slot.op.name[len(variable.op.name) + 1 :],
            )
        return slots


def _checked(traced: _Traced) -> _Traced:
    """Returns a program or function, or raises an UnsupportedError if records cannot contain it."""
    reader = Reader()
    for node in traced.nodes:
        if node.dtype not in DTYPES:
            what = f", as {node.detail[1]} has" if node.operation == "Input" else ""
            raise UnsupportedError(f"records have no values of the dtype {node.dtype}{what}")
        if node.inputs:
            try:
                reader.operation(node, traced.nodes)
            except RecordError as error:
                raise UnsupportedError(f"records cannot contain it: {error}") from None
    return traced


def _by_name(groups: Sequence[Group]) -> List[Group]:
    """Joins the groups of variables that are updated in the same way."""
    found: List[Group] = []
    for group in groups:
        for i, each in enumerate(found):
            if each[2:] == group[2:]:  # all but `variables` and `ranks`
                found[i] = each._replace(variables={**each.variables, **group.variables})
                break
        else:
            found.append(group)
    return found


def _by_rank(groups: Sequence[Group]) -> List[Group]:
    """Joins neighbouring groups, one for each number of axes, and drops the names."""
    found: List[Group] = []
    for rank, group in enumerate(groups):
        group = group._replace(variables=None, ranks=(rank, rank))
        if found:
            last = found[-1]
            if last.sparse == _NO_ROWS:  # so that rank 0 can be joined with rank 1
                last = last._replace(sparse=group.sparse, first=group.first)
            if last[2:] == group[2:]:
                found[-1] = last._replace(ranks=(last.ranks[0], rank))
                continue
        found.append(group)
    found[-1] = found[-1]._replace(ranks=(found[-1].ranks[0], None))
    return found


def _layout_name(layout: Any, variable: Variable) -> str:
    if hasattr(layout, "count_kind"):
        return layout.count_kind
    if isinstance(layout, ScalarSlot):
        return records.SCALAR
    if isinstance(layout, RowSlot):
        return records.ROW
    return level_of_slot(layout, variable, by_rows=False)


def _only_value(name: str, array: np.ndarray) -> Union[bool, int, float]:
    """Returns the value of all elements; raises an UnsupportedError if they differ."""
    array = np.asarray(array)
    if not np.all(array == array.flat[0]):
        raise UnsupportedError(f"the initial values of {name!r} differ")
    return array.flat[0].item()
