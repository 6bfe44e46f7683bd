"""What a rule makes of inputs, and the error bars of each element.

The rule runs in float32, which gives the bits, and in float64. The error bars come from the rule
itself: it runs several times in float64, and each operation has a random error of up to the
rounding of float32. The largest distance from the exact result is the error bar. The results in
float32 count as well, with and without denormal numbers, because they may overflow or be flushed.
"""

from __future__ import annotations

from typing import Any, Callable, Collection, Dict, Iterable, Iterator, Optional

import numpy as np

from legacy_opt.recorded.numpy import NumpyLibrary, NumpyOptimizer, Rows
from legacy_opt.recorded.proofs.proof import Arrays, End, Proof, ProofError, by_slot, cast
from legacy_opt.recorded.records import Record

_SAMPLES = 12
UNIT = 2.0**-24  # the largest relative error of float32
_SMALLEST = float(np.finfo(np.float32).tiny)


class _Noisy(NumpyLibrary):
    """Computes in float64; each result has a random relative error of up to `UNIT`."""

    def __init__(self, seed: int) -> None:
        super().__init__(flush_denormals=False)
        self._random = np.random.RandomState(seed)

    def constant(self, value: Any, dtype: str) -> Any:
        is_exact = value is None or value != value or float(np.float32(value)) == value
        constant = super().constant(value, dtype)
        return constant if is_exact else self._moved(constant)

    def rounded(self, x: Any, dtype: str) -> Any:
        return self._moved(x) if dtype == "float64" else x

    def sum(self, x: Any, level: str, of_rows: bool) -> Any:
        return super().sum(self._moved(x), level, of_rows)

    def summed(self, rows: Rows) -> Rows:
        return super().summed(rows._replace(values=self._moved(rows.values)))

    def summed_in_place(self, rows: Any) -> Any:
        return super().summed_in_place(rows._replace(values=self._moved(rows.values)))

    def _moved(self, x: Any) -> Any:
        if np.ndim(x) == 0 and np.float32(x) == x:  # such as a number of steps, which is compared
            return x
        return x * (1 + UNIT * self._random.uniform(-1, 1, np.shape(x)))


def run(
    proof: Proof,
    record: Optional[Record] = None,
    library: Optional[NumpyLibrary] = None,
    optimizer_class: Callable[..., NumpyOptimizer] = NumpyOptimizer,
    slots: bool = False,
) -> Iterator[Arrays]:
    """Trains with a rule in NumPy, and yields the variables after each step.

    The training is in the dtype of `record`, by default the rule of the proof. `library` has the
    operations. `optimizer_class` makes the optimizer, with the arguments of `NumpyOptimizer`. With
    `slots`, the slots follow after the last step; see `by_slot`.
    """
    record = record or proof.record
    variables = cast(proof.start.variables, record.dtype)
    library = library or NumpyLibrary(proof.flushes_denormals and record.dtype == "float32")
    optimizer = optimizer_class(record, variables, library=library, **proof.hyperparameters[0])
    start_from(proof, optimizer)
    for gradients, hyperparameters in zip(proof.gradients, proof.hyperparameters):
        optimizer.hyperparameters.update(hyperparameters)
        optimizer.step(cast(gradients, record.dtype))
        yield {name: array.copy() for name, array in optimizer.variables.items()}
    if slots:
        yield by_slot(optimizer.state.slots)


def fresh(proof: Proof) -> NumpyOptimizer:
    """Returns an optimizer for the variables of a proof, with the state of a first step."""
    variables = cast(proof.start.variables, proof.record.dtype)
    values: Any = proof.hyperparameters[0]
    return NumpyOptimizer(proof.record, variables, **values)


def is_fresh(proof: Proof) -> bool:
    """Whether a proof starts with the state of a first step."""
    state, start = fresh(proof).state, proof.start
    pairs = [(state.shared, start.shared)]
    pairs += [(slots, start.slots[name]) for name, slots in state.slots.items()]
    return not start.global_step and all(
        np.array_equal(each, found[name]) for own, found in pairs for name, each in own.items()
    )


def start_from(proof: Proof, optimizer: NumpyOptimizer) -> None:
    """Writes the start of a proof into an optimizer with the state of a first step.

    What has its initial value keeps it, because the optimizer may have it in float64. An optimizer
    with another rule keeps also what the proof does not have.
    """
    first = fresh(proof).state
    for name, slots in optimizer.state.slots.items():
        for slot, array in proof.start.slots[name].items():
            is_old = np.array_equal(array, first.slots[name][slot])
            if slot in slots and slots[slot].shape == array.shape and not is_old:
                slots[slot][...] = array
    for name, value in optimizer.state.shared.items():
        if name in first.shared and proof.start.shared[name] != first.shared[name]:
            optimizer.state.shared[name] = type(value)(proof.start.shared[name])
    optimizer.state.global_step = proof.start.global_step


def with_bars(proof: Proof, slots: bool = False) -> Proof:
    """Returns a recorded proof with error bars; its values stay as they were recorded.

    With `slots`, the end of the last step has those of `proof.last`, too; see `by_slot`.
    """
    steps = len(proof.gradients)
    computed = _ends(proof, {*proof.ends, steps + 1}, slots)
    of_rule = widened(proof._replace(ends={step: computed[step] for step in proof.ends})).ends
    ends = {step: of_rule[step]._replace(values=end.values) for step, end in proof.ends.items()}
    if slots and proof.last is not None and steps in ends:
        of_slots = computed[steps + 1]._replace(values=by_slot(proof.last.slots))
        ends[steps] = End(*({**one, **other} for one, other in zip(of_slots, ends[steps])))
    return proof._replace(ends=ends)


def widened(proof: Proof) -> Proof:
    """Returns a proof with error bars for updates that add rows with the same id one by one.

    The rule adds them first, and thus rounds once in a step, where some of TensorFlow's kernels
    round several times. Random errors grow with the root of their number.
    """

    def wide(name: str, bars: np.ndarray, step: int) -> np.ndarray:
        gradients = [each.get(name) for each in proof.gradients[:step]]
        ids = [each.ids for each in gradients if isinstance(each, Rows)]
        if not ids:
            return bars
        added = np.bincount(np.concatenate(ids), minlength=len(bars))
        rounded = np.bincount(np.concatenate([*map(np.unique, ids)]), minlength=len(bars))
        factors = np.sqrt(np.maximum(added, 1) / np.maximum(rounded, 1)).astype("float32")
        return bars * factors.reshape(-1, *[1] * (bars.ndim - 1))

    ends = {}
    for step, end in proof.ends.items():
        bars = {name: wide(name, each, step) for name, each in end.bars.items()}
        ends[step] = end._replace(bars=bars)
    return proof._replace(ends=ends)


def with_ends(proof: Proof, steps: Iterable[int]) -> Proof:
    """Returns a proof with the ends of some steps. Its rule must be one of float32."""
    return proof._replace(ends=_ends(proof, {*steps}))


def _ends(proof: Proof, steps: Collection[int], slots: bool = False) -> Dict[int, End]:
    """Returns the ends of some steps. With `slots`, these follow as one more step."""
    if proof.record.dtype != "float32":
        raise ProofError(f"a proof needs a rule of float32, not of {proof.record.dtype}")
    wide = proof.record.in_dtype("float64")
    flushing = NumpyLibrary(not proof.flushes_denormals)
    trainings = zip(
        run(proof, slots=slots),
        run(proof, wide, slots=slots),
        run(proof, library=flushing, slots=slots),
        *(run(proof, wide, _Noisy(seed), slots=slots) for seed in range(_SAMPLES)),
    )
    ends = {}
    for step, (values, exact, *others) in enumerate(trainings, start=1):
        if step not in steps:
            continue
        bars = {}
        for name, array in exact.items():
            with np.errstate(all="ignore"):
                distances = [np.abs(each[name] - array) for each in (values, *others)]
                distances.append(UNIT * np.abs(values[name].astype("float64")))
                finite = np.where(np.isfinite(distances), distances, 0.0)
                bars[name] = (np.max(finite, axis=0) + _SMALLEST).astype("float32")
        ends[step] = End(values, exact, bars)
    return ends
