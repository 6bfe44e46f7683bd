"""Compares a new kernel with the rule's TensorFlow operations, before the kernel is used.

The comparison finds compilers that violate IEEE arithmetic, and errors of `emit`, which writes the
kernel's C code.
"""

from __future__ import annotations

from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence

import numpy as np
import tensorflow as tf

from legacy_opt.native.runtime import compiled_kernels, standalone
from legacy_opt.programs import program as programs
from legacy_opt.programs.matrix_axes import axes_of
from legacy_opt.programs.operations import COMPARISONS
from legacy_opt.programs.program import Input, Program, UnsupportedError
from legacy_opt.programs.trace import Results

v1 = tf.compat.v1
Arrays = Dict[Input, np.ndarray]
Rule = Callable[[Dict[Input, Any]], Results]
ELEMENTS = 64  # of the small variable with which kernels are compared first
# The largest allowed difference, in units in the last place. The result of a single operation
# differs by up to 6 units between versions of TensorFlow, and a rule has several operations.
UNITS = 16
# The largest allowed difference, as a multiple of the change of TensorFlow's results if each input
# is moved by a unit in the last place.
MOVES = 4
MOST_ELEMENTS = 1 << 22  # larger variables are compared in a small shape only


def check(
    kernel: compiled_kernels.Kernel,
    inputs: List[Input],
    shape: Optional[Sequence[Optional[int]]],
    rule: Rule,
) -> None:
    """Computes updates by the kernel and by TensorFlow, and compares the results.

    `inputs`, `shape` and `rule` are the same as for `trace`. Raises an UnsupportedError if the new
    values differ by more than `UNITS` units in the last place of m, and by more than `MOVES` times
    the change of TensorFlow's new values if each input is moved by a unit in the last place. The
    number m is the largest of the old value, TensorFlow's new value, and the difference between
    these two.
    """
    last_difference = None
    for each in _shapes(shape, kernel.has_matrices):
        difference = _difference(kernel, inputs, each, rule)
        if difference == "":
            return  # equal results in one shape are enough
        last_difference = difference or last_difference
    if last_difference:
        raise UnsupportedError(last_difference)


def _shapes(shape: Optional[Sequence[Optional[int]]], has_matrices: bool) -> List[List[int]]:
    """Returns a small shape, and the variable's own shape, which a rule may read in Python."""
    rank = 1 if shape is None else len(shape)
    if has_matrices:
        small_shape = [2] * (rank - 2) + [4, ELEMENTS // 4]
    else:
        small_shape = [] if rank == 0 else [ELEMENTS] + [1] * (rank - 1)
    own_shape = [ELEMENTS if each is None else each for each in shape or []]
    is_large = np.prod(own_shape, dtype=float) > MOST_ELEMENTS
    if not shape or own_shape == small_shape or is_large:
        return [small_shape]
    return [small_shape, own_shape]


def _difference(
    kernel: compiled_kernels.Kernel, inputs: List[Input], shape: List[int], rule: Rule
) -> Optional[str]:
    """Returns a text about a difference for random inputs and a variable of this shape.

    The text is "" if there is no difference; None if TensorFlow cannot run the rule in this dtype
    or shape.
    """
    random = np.random.RandomState(0)
    first = {each: _random_values(random, each, shape, kernel.has_matrices) for each in inputs}
    feeds = [first, *_other_branches(kernel.program, first)]
    moved_feeds = [
        {each: _moved(random, array, each.dtype) for each, array in feed.items()} for feed in feeds
    ]
    try:
        results = _computed_by_tensorflow(rule, feeds + moved_feeds)
    except (tf.errors.OpError, TypeError, ValueError):
        return None
    count = len(feeds)
    for feed, expected, expected_if_moved in zip(feeds, results[:count], results[count:]):
        computed = _computed_by_kernel(kernel, feed)
        for each in expected:
            before, after, wanted, moved = (
                arrays[each].reshape(feed[each].shape).astype(np.float64)
                for arrays in (feed, computed, expected, expected_if_moved)
            )
            differs = _differs(before, after, wanted, moved, _resolution(each.dtype))
            if differs.any():
                position = differs.ravel().argmax()
                return (
                    f"the kernel {kernel.key} computes {after.flat[position]!r} for {each.name!r}, "
                    f"but TensorFlow computes {wanted.flat[position]!r}"
                )
    return ""


def _other_branches(program: Program, feed: Arrays) -> Iterator[Arrays]:
    """Yields inputs with other outcomes of the program's comparisons of scalars with numbers."""
    scalars = {each.key: each for each in feed if not each.is_slot}
    for node in program.nodes:
        if node.operation not in COMPARISONS or node.level != programs.SCALAR:
            continue
        operands = [program.nodes[each] for each in node.inputs]
        # Instead of a cast, its operand is compared.
        operands = [program.nodes[n.inputs[0]] if n.operation == "Cast" else n for n in operands]
        compared = [scalars.get(each.detail) for each in operands if each.operation == "Input"]
        numbers = [each.detail for each in operands if each.operation == "Const"]
        for scalar, number in zip(compared, numbers):
            if scalar is None:
                continue
            for value in (number - 1, number, number + 1):
                yield {**feed, scalar: np.array(value, feed[scalar].dtype)}


def _computed_by_kernel(kernel: compiled_kernels.Kernel, feed: Arrays) -> Arrays:
    """Returns the new values that the kernel computes: a dict from `Input` to array."""
    arrays = {each: array.copy() for each, array in feed.items()}
    slots = {each.name: array for each, array in arrays.items() if each.is_slot}
    not_slots = {each.name: array for each, array in arrays.items() if not each.is_slot}
    value, gradient = not_slots[programs.VALUE], not_slots[programs.GRADIENT]
    by_rows = any(each.level == programs.ROW for each in kernel.inputs.row_slots)
    rows = range(len(value)) if by_rows else None
    standalone.update(kernel, value, gradient, slots, scalars=not_slots, rows=rows)
    return arrays


def _differs(
    before: np.ndarray, after: np.ndarray, wanted: np.ndarray, moved: np.ndarray, resolution: float
) -> np.ndarray:
    """Returns a mask of the elements at which the kernel's result `after` is wrong.

    `wanted` is TensorFlow's result, and `moved` is TensorFlow's result for inputs that are moved by
    a unit in the last place. If the rule subtracts almost equal numbers, `moved` differs much.
    """
    with np.errstate(invalid="ignore"):  # comparisons with NaN
        largest = np.maximum(np.maximum(abs(before), abs(wanted)), abs(wanted - before))
        error, sensitivity = abs(after - wanted), abs(moved - wanted)
        is_close = (error <= UNITS * largest * resolution) | (error <= MOVES * sensitivity)
    is_same = (after == wanted) | (np.isnan(after) & np.isnan(wanted))  # includes infinities
    return ~(is_close | is_same)


def _random_values(
    random: np.random.RandomState, for_input: Input, shape: Sequence[int], has_matrices: bool
) -> np.ndarray:
    """Returns realistic values: integers are 3, other scalars are below 1, slots are positive."""
    dtype = tf.as_dtype(for_input.dtype).as_numpy_dtype
    if for_input.level == programs.SCALAR:
        shape = ()
    elif has_matrices:
        shape = tuple(shape[axis] for axis in axes_of(for_input.level, len(shape)))
    if for_input.dtype.startswith("int") or for_input.dtype == "bool":
        return np.full(shape, 3, dtype)
    if for_input.level == programs.SCALAR:
        return np.array(random.uniform(0.1, 0.9), dtype)
    low = 0.1 if for_input.is_slot else -2
    return random.uniform(low, 2, shape).astype(dtype)


def _moved(random: np.random.RandomState, array: np.ndarray, dtype: str) -> np.ndarray:
    """Returns an array in which each number is moved by about a unit in the last place."""
    factors = 1 + _resolution(dtype) * random.choice([-1.0, 1.0], array.shape)
    return (array.astype(np.float64) * factors).astype(array.dtype)


def _computed_by_tensorflow(rule: Rule, feeds: List[Arrays]) -> List[Arrays]:
    """Returns the new values that TensorFlow computes for each of the feeds."""
    config = v1.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), v1.Session(config=config) as session:
        tensors = {
            each: v1.placeholder(each.dtype, array.shape) for each, array in feeds[0].items()
        }
        results = rule(tensors)
        new_values = {}
        for each, tensor in tensors.items():
            if each.name == programs.VALUE and not each.is_slot:
                new_values[each] = results.new_value(tensor)
            elif each.is_slot and each.name in results.changes:
                how, change, _ = results.changes[each.name]
                change = tf.convert_to_tensor(change, each.dtype)
                new_values[each] = tensor + change if how == programs.ADD else change
        return [
            session.run(new_values, {tensors[each]: array for each, array in feed.items()})
            for feed in feeds
        ]


def _resolution(dtype: str) -> float:
    """Returns the relative size of a unit in the last place; 0 for integers."""
    if dtype.startswith("int") or dtype == "bool":
        return 0.0
    return 2.0**-7 if dtype == "bfloat16" else float(np.finfo(dtype).eps)
