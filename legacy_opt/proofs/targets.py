"""Implementations that train with the inputs of a proof: of other libraries, and our own."""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional

import numpy as np

from legacy_opt.proofs.arguments import Arguments, arguments_of, changes
from legacy_opt.recorded.native import NativeOptimizer
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs.drawing import RATES
from legacy_opt.recorded.proofs.proof import Arrays, Proof, ProofError, by_slot, cast, dense
from legacy_opt.recorded.proofs.reference import is_fresh, run

Steps = List[Dict[str, Any]]  # the arguments of each step
OWN = "legacy-opt"


class Target(NamedTuple):
    """An implementation that trains with the inputs of a proof.

    Attributes:
      text: its name, as for `find`.
      train: a function that gets a proof in the dtype of a training, whose arrays it may change,
        and the arguments of each step; and yields the variables after each step. After the last
        step, it may yield the slots; see `by_slot`.
      arguments: a function that returns the `Arguments` for a proof.
    """

    text: str
    train: Callable[[Proof, Steps], Iterator[Arrays]]
    arguments: Callable[[Proof], Arguments]


def find(
    text: str,
    mapping: Optional[Mapping[str, str]] = None,
    kinds: Optional[Mapping[str, Any]] = None,
) -> Target:
    """Returns a target.

    Args:
      text: "torch:module:Class", "keras:module:Class", "optax:module:function" of a function that
        returns a transformation, "numpy:module:function", or "legacy-opt:" and numpy, native,
        torch, jax, optax or keras, or one of these with a level, such as "torch-exact". A function
        for NumPy gets a dict of arrays, and the hyperparameters of the first step. It returns a
        function ``step(gradients, hyperparameters)`` that changes the arrays.
      mapping: the sources of arguments of the class or function: names of hyperparameters, such as
        ``{"betas": "beta1,beta2"}``, or constants, such as ``{"nesterov": "True"}``.
      kinds: other functions that train, by the first word of `text`.

    Raises:
      ProofError: there is no such target, or it cannot be imported.
    """
    kinds = _KINDS if kinds is None else kinds
    kind, _, name = text.partition(":")
    library, _, level = name.partition("-")
    if "keras" in (kind, library):  # Keras alone would choose TensorFlow
        backend = "jax" if importlib.util.find_spec("jax") else "torch"
        os.environ.setdefault("KERAS_BACKEND", backend)
    if mapping and kind in (OWN, "numpy"):
        raise ProofError(f"{text!r} has no arguments to map: it gets all hyperparameters")
    if kind == OWN and library in _OWN and not (level and library in ("numpy", "native")):
        return Target(text, functools.partial(_OWN[library], level), _everything)
    module, _, path = name.partition(":")
    if kind not in kinds or not (module and path):
        raise ProofError(
            f"there is no target {text!r}: a target is {':module:name, '.join(kinds)}:module:name, "
            f"or {OWN}: and one of {', '.join(_OWN)}"
        )
    function = _loaded(text, module, path)

    def arguments(proof: Proof) -> Arguments:
        if kind == "numpy":
            return _everything(proof)
        first = [None] if kind == "torch" else []  # the parameters
        found = arguments_of(functools.partial(function, *first), proof, mapping or {})
        is_sparse = any(isinstance(x, Rows) for each in proof.gradients for x in each.values())
        if is_sparse and kind in ("optax", "keras"):
            found.notes.append("sparse gradients became dense: rows with the same id were added")
        return found

    return Target(text, functools.partial(kinds[kind], function), arguments)


def _everything(proof: Proof) -> Arguments:
    return Arguments([dict(each) for each in proof.hyperparameters], [])


def _loaded(text: str, module: str, path: str) -> Any:
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        return functools.reduce(getattr, path.split("."), importlib.import_module(module))
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ProofError(f"{text!r} cannot be used: {type(error).__name__}: {error}") from error


@contextlib.contextmanager
def _set(function: Callable[[Any], Any], value: Any, before: Any) -> Iterator[None]:
    """Sets a mode of a library, and sets it back."""
    function(value)
    try:
        yield
    finally:
        function(before)


def _denormals(proof: Proof) -> Any:
    import torch

    flush = proof.flushes_denormals and proof.record.dtype == "float32"
    denormal = torch.tensor(1e-40, dtype=torch.float32)
    return _set(torch.set_flush_denormal, flush, not (denormal * 1).item())


def _x64(needed: bool) -> Any:
    import jax

    set_x64 = functools.partial(jax.config.update, "jax_enable_x64")
    return _set(set_x64, needed, jax.config.jax_enable_x64)


def _set_to_zero(gradients: Mapping[str, Any]) -> None:
    """Sets gradients to zero after a step, as `zero_grad` may do: a class copies what it keeps."""
    for each in gradients.values():
        array = each.values if isinstance(each, Rows) else each
        if array is not None:
            array[...] = 0


def refuse_warm(proof: Proof) -> None:
    """Raises a ProofError if a proof does not start with the first step of an optimizer."""
    if is_fresh(proof):
        return
    if not proof.has_rule:
        name = proof.record.optimizer
        raise ProofError(f"{name} was recorded without a rule: its first slots are unknown")
    raise ProofError(
        "it cannot begin in the middle of a training, because it has other slots than the rule: "
        "record from the first step of the optimizer"
    )


def _numpy(function: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    refuse_warm(proof)
    variables = proof.start.variables
    step = function(variables, dict(steps[0]))
    for gradients, values in zip(proof.gradients, steps):
        step(gradients, dict(values))
        _set_to_zero(gradients)
        yield cast(variables, proof.record.dtype)


def _native(_: str, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    make = lambda *args, library, **values: NativeOptimizer(*args, **values)  # noqa: E731
    return run(proof, optimizer_class=make, slots=True)


def _torch(cls: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    """Trains with a class of PyTorch; if `cls` is a level, with the rule."""
    import torch

    from legacy_opt.recorded.torch import RecordedOptimizer, own, state

    def gradient(x: Any, parameter: Any) -> Any:
        if not isinstance(x, Rows):
            return None if x is None else torch.from_numpy(x)
        ids, values = map(torch.from_numpy, x)
        return torch.sparse_coo_tensor(ids[None], values, parameter.shape, check_invariants=False)

    start, is_own = proof.start, isinstance(cls, str)
    params = {name: torch.nn.Parameter(torch.from_numpy(x)) for name, x in start.variables.items()}
    with _denormals(proof):
        if is_own:
            named, level = [*params.items()], cls or "auto"
            optimizer: Any = RecordedOptimizer(named, proof.record, level, **steps[0])
            state.load_state(optimizer, start)
        else:
            optimizer = cls([*params.values()], **steps[0])
            if not is_fresh(proof):
                known = own.from_state(start, params, **proof.hyperparameters[0]).optimizer
                if type(known) is not type(optimizer):
                    refuse_warm(proof)
                optimizer.state.update(known.state)
        for gradients, changed in zip(proof.gradients, changes(steps)):
            for group in optimizer.param_groups if changed else ():
                known_as = {x: "lr" if x in RATES and x not in group else x for x in changed}
                new = {known_as[name]: x for name, x in changed.items()}
                if not set(new) <= set(group):
                    raise ProofError(f"{[*new]} change, but are no keys of param_groups")
                group.update(new)
            for name, parameter in params.items():
                parameter.grad = gradient(gradients.get(name), parameter)
            optimizer.step()
            _set_to_zero(gradients)
            yield {name: np.array(each.detach().numpy()) for name, each in params.items()}
        if is_own:
            yield by_slot(state.state_of(optimizer).slots)


def _jax(function: Any, proof: Proof, steps: Steps, is_optax: bool = True) -> Iterator[Arrays]:
    """Trains with a transformation of optax; if `function` is a level, with the rule."""
    import jax.numpy as jnp

    from legacy_opt.recorded import jax as recorded_jax
    from legacy_opt.recorded.jax import state as jax_state

    record, start, is_own = proof.record, proof.start.variables, isinstance(function, str)
    tree = collections.OrderedDict  # JAX sorts other dicts; clipping adds in the order of names

    def gradient(x: Any, like: Any) -> Any:
        if is_own:
            return recorded_jax.Rows(*x) if isinstance(x, Rows) else x
        return x if x is None else jnp.array(dense(x, like))

    def made(values: Any) -> Any:
        if is_own and is_optax:
            from legacy_opt.recorded.optax import from_record

            return from_record(record, function or "exact", **values)
        make = functools.partial(recorded_jax.JaxOptimizer, record, function or "auto")
        return (make if is_own else function)(**values)

    with _x64(is_own or record.dtype == "float64"):
        params: Any = tree((name, jnp.array(x)) for name, x in start.items())
        optimizer = made(steps[0])
        state = optimizer.init(params)
        if is_own:
            state, params = jax_state.load_state(record, proof.start, state, params)
        else:
            refuse_warm(proof)
        for gradients, values, changed in zip(proof.gradients, steps, changes(steps)):
            if changed and is_own:
                state = state._replace(hyperparams={**state.hyperparams, **changed})
            elif changed:
                optimizer = made(values)
                state = _with_new_values(state, optimizer.init(params))
            grads = tree((name, gradient(gradients.get(name), x)) for name, x in start.items())
            if hasattr(optimizer, "step"):
                params, state = optimizer.step(params, state, grads)
            else:
                import optax

                updates, state = optimizer.update(grads, state, params)
                params = optax.apply_updates(params, updates)
            yield cast(params, record.dtype)
        if is_own:
            yield by_slot(jax_state.state_of(record, state, params).slots)


def _with_new_values(state: Any, fresh: Any) -> Any:
    """Returns a state with the hyperparameters of another, those of `inject_hyperparams`."""
    import jax

    is_injected = lambda x: hasattr(x, "hyperparams")  # noqa: E731
    new = lambda x, y: x._replace(hyperparams=y.hyperparams) if is_injected(x) else x  # noqa: E731
    return jax.tree.map(new, state, fresh, is_leaf=is_injected)


def _keras(cls: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    """Trains with a class of Keras 3; if `cls` is a level, with the rule."""
    import keras

    from legacy_opt.recorded.keras import RecordedOptimizer
    from legacy_opt.recorded.keras import state as keras_state

    start, dtype, is_own = proof.start.variables, proof.record.dtype, isinstance(cls, str)
    is_jax = keras.backend.backend() == "jax"
    mode = _x64(is_own or dtype == "float64") if is_jax else _denormals(proof)
    floatx = keras.config.floatx()  # the dtype of the learning rate
    with mode, _set(keras.config.set_floatx, dtype, floatx):
        variables = []
        for name, array in start.items():
            *scopes, last = name.split("/")
            with contextlib.ExitStack() as scope:
                for each in scopes:
                    scope.enter_context(keras.name_scope(each))
                variables.append(keras.Variable(array, dtype=dtype, name=last))
        names, values = dict(zip(start, variables)), dict(steps[0])
        if is_own:
            rate = values.pop("learning_rate", None)
            tables = {n for each in proof.gradients for n, x in each.items() if isinstance(x, Rows)}
            optimizer = RecordedOptimizer(proof.record, rate, cls or "auto", values, sorted(tables))
            optimizer.build(variables)
            keras_state.load_state(optimizer, proof.start, names)
        else:
            refuse_warm(proof)
            optimizer = cls(**values)
            optimizer.build(variables)
        for gradients, changed in zip(proof.gradients, changes(steps, ("learning_rate", "lr"))):
            for rate in changed.values():
                optimizer.learning_rate = rate
            grads = [dense(gradients.get(name), x) for name, x in start.items()]
            tensors = [None if x is None else keras.ops.convert_to_tensor(x) for x in grads]
            optimizer.apply(tensors, variables)
            yield cast(dict(zip(start, map(keras.ops.convert_to_numpy, variables))), dtype)
        if is_own:
            yield by_slot(keras_state.state_of(optimizer, names).slots)


# Functions that train with a class or function of a user, and with the level of a rule.
_KINDS = {"numpy": _numpy, "torch": _torch, "optax": _jax, "keras": _keras}
_OWN: Dict[str, Any] = {
    "numpy": lambda _, proof, steps: run(proof, slots=True),
    "native": _native,
    "torch": _torch,
    "jax": functools.partial(_jax, is_optax=False),
    "optax": _jax,
    "keras": _keras,
}
