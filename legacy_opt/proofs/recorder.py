"""Records trainings of PyTorch, Keras and JAX, as proofs that `replay` trains again."""

from __future__ import annotations

import functools
from typing import Any, Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from legacy_opt import recorded
from legacy_opt.durable_files import PathLike
from legacy_opt.programs.program import Function
from legacy_opt.proofs.arguments import values_of
from legacy_opt.proofs.replaying import versions
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs import runs
from legacy_opt.recorded.proofs.proof import MOST_STEPS, Arrays, End, Proof, ProofError, Run
from legacy_opt.recorded.proofs.reference import fresh
from legacy_opt.recorded.records import Group, Record, Scalar
from legacy_opt.recorded.state_files import SavedState, state_of


class _Seen(NamedTuple):
    """What an optimizer has before or after a step; in PyTorch, a parameter group."""

    variables: Arrays  # copies
    gradients: Dict[str, Any]  # copies, or `Rows`
    hyperparameters: Dict[str, Any]  # by the names of the library
    is_first: bool  # whether no step was made


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
        record = recorded.load(record) if isinstance(record, str) else record
        self._rule = record or getattr(optimizer, "record", None)
        self._name = "optax" if isinstance(optimizer, tuple) else type(optimizer).__name__
        self._names = {id(variable): name for name, variable in (names or {}).items()}
        self._most, self._left_out, self._flushes_denormals = steps, "", True
        self._steps: List[Tuple[List[_Seen], List[_Seen]]] = []  # before and after
        if hasattr(optimizer, "param_groups"):
            self._watch_torch(optimizer)
        elif hasattr(optimizer, "apply_gradients"):
            self._watch_keras(optimizer)
        elif hasattr(optimizer, "init"):
            self._watch_jax(optimizer)
        else:
            raise ProofError(f"not an optimizer of PyTorch, Keras, optax or ours: {optimizer!r}")

    def run(self) -> Run:
        """Returns what was recorded; raises a ProofError if this is nothing."""
        if not self._steps:
            raise ProofError(f"the recorder has seen no step of {self._name}")
        groups = zip(*(zip(before, after) for before, after in self._steps))
        found = {
            f"{self._name}_{i}" if i else self._name: self._proof(*zip(*steps))
            for i, steps in enumerate(groups)
        }
        left_out = [self._left_out] if self._left_out else []
        return Run(found, made={"by": "recorder", "versions": versions(), "left_out": left_out})

    def write(self, path: PathLike) -> None:
        """Writes what was recorded into a file.

        Raises:
          ProofError: no step was recorded.
          RecordError: see `legacy_opt.proofs.write_run`.
        """
        runs.write(path, self.run())

    def _proof(self, before: Sequence[_Seen], after: Sequence[_Seen]) -> Proof:
        hyperparameters = [each.hyperparameters for each in before]
        if self._rule is not None:
            hyperparameters = [values_of(self._rule, each) for each in hyperparameters]
        record = self._rule or _without_rule(self._name, before[0].hyperparameters)
        start = SavedState(record, 0, {}, before[0].variables, {})
        start = state_of(fresh(Proof(start, hyperparameters, (), {})))
        gradients = [each.gradients for each in before]
        ends = {i: End(each.variables, {}, {}) for i, each in enumerate(after, start=1)}
        return Proof(start, hyperparameters, gradients, ends, self._flushes_denormals)

    def _checked(self, before: List[_Seen]) -> List[_Seen]:
        if not self._steps and not all(each.is_first for each in before):
            raise ProofError("steps were made before: make the recorder before the first step")
        return before

    def _add(self, before: List[_Seen], after: List[_Seen]) -> None:
        step = len(self._steps) + 1
        if step > 1 and not self._left_out:
            one, other = (
                {name: x.tobytes() for each in part for name, x in each.variables.items()}
                for part in (before, self._steps[-1][1])
            )
            changed = [name for name in {**one, **other} if one.get(name) != other.get(name)]
            if changed or step > self._most:
                reason = f"{changed[0]!r} was changed before" if changed else f"steps={self._most}"
                self._left_out = f"step {step} and later: {reason}"
        if not self._left_out:
            self._steps.append((before, after))

    def _watch_torch(self, optimizer: Any) -> None:
        import torch

        from legacy_opt.recorded.torch import in_tensorflow, named

        def seen(is_after: bool = False) -> List[_Seen]:
            groups, count = [], 0
            for group in optimizer.param_groups:
                given, is_first, axes = [], True, group.get("axes")
                for own_name, parameter in named(group):
                    name = self._names.get(id(parameter), own_name or f"{count}")
                    has_none = is_after or parameter.grad is None
                    gradient = None if has_none else in_tensorflow(parameter.grad, axes)
                    given.append((name, in_tensorflow(parameter, axes), gradient))
                    # Without a "step", the first step makes the state.
                    state, count = optimizer.state.get(parameter, {}), count + 1
                    is_first &= not group.get("global_step", state.get("step", len(state)))
                values = {x: group[x] for x in group if x not in ("params", "initial_lr")}
                groups.append(_seen(given, values, is_first))
            return groups

        before: List[List[_Seen]] = []

        def begin(_: Any, args: Any, kwargs: Any) -> None:
            if any(each is not None for each in (*args[1:], *kwargs.values())):
                raise ProofError("a closure cannot be recorded: call backward(), then step()")
            if getattr(optimizer, "grad_scale", None) is not None:
                raise ProofError("a fused step divides by the loss scale: pass fused=False")
            before[:] = [self._checked(seen())]

        self._flushes_denormals = not (torch.tensor(1e-40, dtype=torch.float32) * 1).item()
        optimizer.register_step_pre_hook(begin)
        optimizer.register_step_post_hook(lambda *_: self._add(before[0], seen(is_after=True)))

    def _watch_keras(self, optimizer: Any) -> None:
        method = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
        original = getattr(optimizer, method)

        def seen(pairs: Iterable[Any]) -> List[_Seen]:
            given, is_first = [], not _array(optimizer.iterations)
            for gradient, variable in pairs:
                name = getattr(variable, "path", None) or variable.name.partition(":")[0]
                given.append((self._names.get(id(variable), name), variable, gradient))
            # The attribute of an OptimizerV2 may be a schedule; later ones in Keras 2 are old.
            getattr(optimizer, "_compute_current_learning_rate", lambda: None)()
            is_v2 = hasattr(optimizer, "_decayed_lr")
            rate = optimizer._decayed_lr("float32") if is_v2 else optimizer.learning_rate
            config = optimizer.get_config()
            values = {**config, **config.get("hyperparameters", {}), "learning_rate": _array(rate)}
            return [_seen(given, values, is_first)]

        @functools.wraps(original)
        def recorded_step(given: Any, *args: Any, **kwargs: Any) -> Any:
            pairs = given = list(given)
            if method == "apply":
                variables = [*args, *kwargs.values(), optimizer._trainable_variables]
                pairs = list(zip(given, variables[0]))
            before = self._checked(seen(pairs))
            result = original(given, *args, **kwargs)
            self._add(before, seen((None, variable) for _, variable in pairs))
            return result

        vars(optimizer)[method] = recorded_step  # Keras would track an attribute that is assigned

    def _watch_jax(self, optimizer: Any) -> None:
        has_begun = []

        def init(params: Any) -> Any:
            has_begun.append(True)
            return optimizer.init(params)

        def update(updates: Any, state: Any, params: Any = None) -> Tuple[Any, Any]:
            import optax

            if params is None:
                raise ProofError("the recorder needs params: call update(gradients, state, params)")
            new_updates, new_state = optimizer.update(updates, state, params)
            add(params, updates, optax.apply_updates(params, new_updates), new_state)
            return new_updates, new_state

        def step(params: Any, state: Any, gradients: Any) -> Tuple[Any, Any]:
            new_params, new_state = optimizer.step(params, state, gradients)
            add(params, gradients, new_params, new_state)
            return new_params, new_state

        def add(params: Any, gradients: Any, new_params: Any, new_state: Any) -> None:
            from jax.tree_util import tree_flatten_with_path

            from legacy_opt.recorded.jax import leaves_of

            values = {}  # the new state has those of schedules in this step
            for path, leaf in tree_flatten_with_path(new_state)[0]:
                keys = [getattr(each, "name", getattr(each, "key", None)) for each in path]
                if "hyperparams" in keys:
                    values[keys[-1]] = leaf
            (leaves, tree), (new_leaves, _) = leaves_of(params), leaves_of(new_params)
            grads = tree.flatten_up_to(gradients)
            before = [(name, x, gradient) for (name, x), gradient in zip(leaves, grads)]
            after = [(name, x, None) for name, x in new_leaves]
            given = self._checked([_seen(before, values, bool(has_begun))])
            self._add(given, [_seen(after, values, False)])

        self.init, self.update, self.step = init, update, step


def _seen(given: Iterable[Any], values: Mapping[str, Any], is_first: bool) -> _Seen:
    """Returns copies; `given` are tuples (name, variable, gradient or None)."""
    seen = _Seen({}, {}, {}, is_first)
    for name, variable, gradient in given:
        array = _array(variable)
        if name in seen.variables:
            raise ProofError(f"two variables have the name {name!r}: pass other names")
        if array.dtype != np.float32:
            raise ProofError(f"{name!r} is of {array.dtype}: only float32 can be recorded")
        seen.variables[name] = array
        if gradient is not None:
            seen.gradients[name] = _gradient(gradient)
    for name, value in values.items():
        parts = {name: value}
        if isinstance(value, (tuple, list)):  # "betas" are "beta1" and so on
            parts = {f"{name.rstrip('s')}{i}": x for i, x in enumerate(value, start=1)}
        for key, each in parts.items():
            each = each.item() if np.ndim(each) == 0 and hasattr(each, "item") else each
            if isinstance(each, (bool, int, float)) and np.isfinite(each):
                seen.hyperparameters[key] = each
    return seen


def _gradient(gradient: Any) -> Any:
    if getattr(gradient, "is_sparse", False):  # of PyTorch
        return Rows(_array(gradient._indices().squeeze(0)), _array(gradient._values()))
    ids = getattr(gradient, "ids", getattr(gradient, "indices", None))
    if ids is None or callable(ids):  # PyTorch's dense tensors have such a method
        return _array(gradient)
    return Rows(_array(ids), _array(gradient.values))


def _array(value: Any) -> np.ndarray:
    value = getattr(value, "value", value)  # of a variable of Keras 3, in the scope of a trainer
    value = value() if callable(value) else value
    try:
        value = value.detach().cpu() if hasattr(value, "detach") else value
        return np.array(value.numpy() if hasattr(value, "numpy") else value)
    except Exception as error:  # each library has its own
        raise ProofError(
            "a compiled training, or a dtype that NumPy lacks, cannot be recorded: pass "
            "run_eagerly=True to compile(), or train without jax.jit or tf.function"
        ) from error


def _without_rule(name: str, values: Mapping[str, Any]) -> Record:
    why = "pass record= to Recorder"
    scalars = {
        key: Scalar("bool" if isinstance(x, bool) else "float64", x) for key, x in values.items()
    }
    nothing, group = Function((), {}), Group(None, (0, None), {}, why, why)
    return Record(name, "float32", None, scalars, {}, nothing, nothing, (group,))
