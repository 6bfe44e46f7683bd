"""Records trainings of PyTorch, Keras and JAX, as proofs that `replay` trains again."""

from __future__ import annotations

from typing import Any, Dict, List, Mapping, Optional, Union

import numpy as np

from legacy_opt import recorded
from legacy_opt.programs.program import Function
from legacy_opt.proofs import recorder_hooks
from legacy_opt.proofs.arguments import values_of
from legacy_opt.proofs.recorder_hooks import Seen
from legacy_opt.proofs.replaying import versions
from legacy_opt.recorded.proofs import runs
from legacy_opt.recorded.proofs.proof import MOST_STEPS, End, Proof, ProofError, Run
from legacy_opt.recorded.proofs.reference import fresh
from legacy_opt.recorded.records import Group, Record, Scalar
from legacy_opt.recorded.state_files import SavedState, state_of
from legacy_opt.recorded.writing import PathLike


class Recorder:
    """Records the steps of an optimizer, from the first one, for replays.

    Gradients are recorded as the optimizer gets them, so make the recorder after other hooks of
    PyTorch. Each parameter group of PyTorch becomes a proof. Nothing more is recorded after a
    change of variables between steps.

    Example::

        import torch
        from legacy_opt import proofs

        model = torch.nn.Linear(3, 2)
        optimizer = torch.optim.Adam(model.parameters())
        recorder = proofs.Recorder(optimizer, names=dict(model.named_parameters()))
        model(torch.ones(4, 3)).sum().backward()
        optimizer.step()
        recorder.write("run.proof")

    Args:
      optimizer: an optimizer of PyTorch or Keras (`fit` needs ``run_eagerly=True``). Or a
        transformation of optax or a `legacy_opt.recorded.jax.JaxOptimizer`: train with `init`, and
        `update` or `step`, of the recorder instead, outside of `jax.jit`.
      names: a dict from names to parameters of PyTorch or variables of Keras. By default, the names
        are those in the library, or numbers.
      record: the rule of the training: a `Record`, or the name of a recorded optimizer. By default,
        it is the optimizer's own, or the proof has no rule: replays then compare with what was
        recorded alone.
      steps: the largest number of steps to record.

    Raises:
      ProofError: the optimizer is of another kind, or `steps` is out of range.
      RecordError: there is no such record.
    """

    def __init__(
        self,
        optimizer: Any,
        names: Optional[Mapping[str, Any]] = None,
        record: Union[Record, str, None] = None,
        steps: int = 200,
    ) -> None:
        if not 1 <= steps <= MOST_STEPS:
            raise ProofError(f"steps must be a number from 1 to {MOST_STEPS:,}, got {steps}")
        hooks = {
            "param_groups": recorder_hooks.of_torch,
            "apply_gradients": recorder_hooks.of_keras,
            "init": recorder_hooks.of_jax,
        }
        hook = next((x for name, x in hooks.items() if hasattr(optimizer, name)), None)
        if hook is None:
            raise ProofError(f"not an optimizer of PyTorch, Keras, optax or ours: {optimizer!r}")
        record = recorded.load(record) if isinstance(record, str) else record
        self._rule = record or getattr(optimizer, "record", None)
        self._name = "optax" if isinstance(optimizer, tuple) else type(optimizer).__name__
        self._most, self._end = steps, ""
        self._inputs: List[List[Seen]] = []  # for each step
        self._results: List[List[Seen]] = []
        self._name_of = {id(variable): name for name, variable in (names or {}).items()}
        self.flushes_denormals = True
        hook(self, optimizer)

    def name_of(self, variable: Any, name: Any) -> str:
        """Returns the name that was given to a variable, or its name in the library."""
        return self._name_of.get(id(variable), f"{name}")

    def before(self, seen: List[Seen]) -> None:
        """Records what a step gets."""
        step = len(self._results) + 1
        if step == 1 and not all(each.is_first for each in seen):
            raise ProofError("steps were made before: make the recorder before the first step")
        if step > 1 and not self._end:
            given, last = (
                {name: x.tobytes() for each in part for name, x in each.variables.items()}
                for part in (seen, self._results[-1])
            )
            changed = [name for name in {**given, **last} if given.get(name) != last.get(name)]
            reason = f"{changed[0]!r} was changed before" if changed else f"steps={self._most}"
            if changed or step > self._most:
                self._end = f"step {step} and later: {reason}"
        if not self._end:
            self._inputs[step - 1 :] = [seen]  # the step before may have raised an error

    def after(self, seen: List[Seen]) -> None:
        """Records what a step made."""
        if not self._end:
            self._results.append([each._replace(gradients={}) for each in seen])

    def run(self) -> Run:
        """Returns what was recorded; raises a ProofError if this is nothing."""
        if not self._results:
            raise ProofError(f"the recorder has seen no step of {self._name}")
        found = {
            f"{self._name}_{i}" if i else self._name: self._proof(inputs, results)
            for i, (inputs, results) in enumerate(zip(zip(*self._inputs), zip(*self._results)))
        }
        left_out = [self._end] if self._end else []
        return Run(found, made={"by": "recorder", "versions": versions(), "left_out": left_out})

    def _proof(self, inputs: Any, results: Any) -> Proof:
        steps = [_numbers(each.hyperparameters) for each, _ in zip(inputs, results)]
        record = self._rule or _without_rule(self._name, steps[0])
        if self._rule is not None:
            steps = [values_of(record, each) for each in steps]
        start = SavedState(record, 0, {}, inputs[0].variables, {})
        start = state_of(fresh(Proof(start, steps, (), {})))
        gradients = [each.gradients for each, _ in zip(inputs, results)]
        ends = {i: End(each.variables, {}, {}) for i, each in enumerate(results, start=1)}
        return Proof(start, steps, gradients, ends, self.flushes_denormals)

    def write(self, path: PathLike) -> None:
        """Writes what was recorded into a file.

        Raises:
          ProofError: no step was recorded.
          RecordError: see `legacy_opt.proofs.write_run`.
        """
        runs.write(path, self.run())


def _numbers(values: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the numbers among hyperparameters; those of a tuple "betas" are "beta1" and so on."""
    found = {}
    for name, value in values.items():
        parts = {name: value}
        if isinstance(value, (tuple, list)):
            parts = {f"{name.rstrip('s')}{i}": x for i, x in enumerate(value, start=1)}
        for key, each in parts.items():
            each = each.item() if np.ndim(each) == 0 and hasattr(each, "item") else each
            if isinstance(each, (bool, int, float)) and np.isfinite(each):
                found[key] = each
    return found


def _without_rule(name: str, values: Mapping[str, Any]) -> Record:
    why = f"{name} was recorded without a rule"
    scalars = {
        key: Scalar("bool" if isinstance(x, bool) else "float64", x) for key, x in values.items()
    }
    nothing, group = Function((), {}), Group(None, (0, None), {}, why, why)
    return Record(name, "float32", None, scalars, {}, nothing, nothing, (group,))
