"""Implementations that train with the inputs of a proof: of other libraries, and our own."""

from __future__ import annotations

import collections
import contextlib
import functools
import importlib
import importlib.util
import os
import sys
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

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
        train = functools.partial(_OWN[library], level)
        return Target(text, train, _everything)
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


def _set_to_zero(gradients: Mapping[str, Any]) -> None:
    """Sets gradients to zero after a step, as `zero_grad` may do: a class copies what it keeps."""
    for each in gradients.values():
        array = each.values if isinstance(each, Rows) else each
        if array is not None:
            array[...] = 0


def refuse_warm(proof: Proof) -> None:
    """Raises a ProofError if a proof does not start with the first step of an optimizer."""
    if not is_fresh(proof):
        raise ProofError(
            "it cannot begin in the middle of a training, because it has other slots than the "
            "rule: record from the first step of the optimizer"
        )


def _in_numpy(function: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    refuse_warm(proof)
    variables = proof.start.variables
    step = function(variables, dict(steps[0]))
    for gradients, values in zip(proof.gradients, steps):
        step(gradients, dict(values))
        _set_to_zero(gradients)
        yield cast(variables, proof.record.dtype)


def _native(record: Any, variables: Arrays, library: Any, **values: Any) -> NativeOptimizer:
    del library  # kernels flush denormals
    return NativeOptimizer(record, variables, **values)


def _in_torch(cls: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    from legacy_opt.recorded.torch import own

    def make(params: Any) -> Any:
        optimizer = cls([*params.values()], **steps[0])
        if not is_fresh(proof):
            known = own.from_state(proof.start, params, **proof.hyperparameters[0]).optimizer
            if type(known) is not type(optimizer):
                refuse_warm(proof)
            optimizer.state.update(known.state)
        return optimizer

    return _torch(make, proof, steps)


def _own_torch(level: str, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    from legacy_opt.recorded.torch import RecordedOptimizer, state

    found: List[Any] = []

    def make(params: Any) -> Any:
        found.append(
            RecordedOptimizer([*params.items()], proof.record, level or "auto", **steps[0])
        )
        if not is_fresh(proof):
            state.load_state(found[0], proof.start)
        return found[0]

    yield from _torch(make, proof, steps)
    yield by_slot(state.state_of(found[0]).slots)


def _key(argument: str, group: Mapping[str, Any]) -> str:
    return "lr" if argument in RATES and argument not in group else argument


def _torch(make: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    import torch

    def gradient(x: Any, parameter: Any) -> Any:
        if not isinstance(x, Rows):
            return None if x is None else torch.from_numpy(x)
        ids, values = map(torch.from_numpy, x)
        return torch.sparse_coo_tensor(ids[None], values, parameter.shape, check_invariants=False)

    start = proof.start.variables
    params = {name: torch.nn.Parameter(torch.from_numpy(x)) for name, x in start.items()}
    with _denormals(proof):
        optimizer = make(params)
        for gradients, changed in zip(proof.gradients, changes(steps)):
            for group in optimizer.param_groups if changed else ():
                new = {_key(name, group): x for name, x in changed.items()}
                if not set(new) <= set(group):
                    raise ProofError(f"{[*new]} change, but are no keys of param_groups")
                group.update(new)
            for name, parameter in params.items():
                parameter.grad = gradient(gradients.get(name), parameter)
            optimizer.step()
            _set_to_zero(gradients)
            yield {name: np.array(each.detach().numpy()) for name, each in params.items()}


def _x64(needed: bool) -> Any:
    import jax

    set_x64 = functools.partial(jax.config.update, "jax_enable_x64")
    return _set(set_x64, needed, jax.config.jax_enable_x64)


def _in_optax(function: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    import jax
    import jax.numpy as jnp

    def begun(state: Any, params: Any) -> Any:
        from legacy_opt.recorded.jax import own

        def as_params(x: Any) -> Any:
            return type(params)((name, x[name]) for name in params) if type(x) is dict else x

        known = own.from_state(proof.start, **proof.hyperparameters[0]).opt_state
        known = jax.tree.map(as_params, known, is_leaf=lambda x: type(x) is dict)
        if jax.tree.structure(known) != jax.tree.structure(state):
            refuse_warm(proof)
        return known, params

    with _x64(proof.record.dtype == "float64"):
        arrays = lambda x, like: x if x is None else jnp.array(dense(x, like))  # noqa: E731
        for _, params in _jax(lambda values: function(**values), arrays, proof, steps, begun):
            yield cast(params, proof.record.dtype)


def _own_jax(level: str, proof: Proof, steps: Steps, is_optax: bool = False) -> Iterator[Arrays]:
    from legacy_opt.recorded import jax as recorded_jax
    from legacy_opt.recorded import optax as recorded_optax
    from legacy_opt.recorded.jax import state as jax_state

    def begun(state: Any, params: Any) -> Any:
        return jax_state.load_state(proof.record, proof.start, state, params)

    make = recorded_optax.from_record if is_optax else recorded_jax.JaxOptimizer
    with _x64(True):
        optimizer = make(proof.record, level or ("exact" if is_optax else "auto"), **steps[0])
        rows = lambda x, _: recorded_jax.Rows(*x) if isinstance(x, Rows) else x  # noqa: E731
        trained: Any = ()
        for trained in _jax(lambda values: optimizer, rows, proof, steps, begun, True):
            yield cast(trained[1], proof.record.dtype)
        yield by_slot(jax_state.state_of(proof.record, *trained).slots)


def _is_injected(state: Any) -> bool:
    return hasattr(state, "hyperparams")


def _jax(
    make: Any, gradient: Any, proof: Proof, steps: Steps, begun: Any, is_own: bool = False
) -> Iterator[Tuple[Any, Any]]:
    """Yields the state and the parameters after each step."""
    import jax
    import jax.numpy as jnp

    def injected(old: Any, new: Any) -> Any:  # of `optax.inject_hyperparams`
        return old._replace(hyperparams=new.hyperparams) if _is_injected(old) else old

    tree = collections.OrderedDict  # JAX sorts other dicts; clipping adds in the order of names
    start, state = proof.start.variables, None
    params = tree((name, jnp.array(x)) for name, x in start.items())
    for gradients, values, changed in zip(proof.gradients, steps, changes(steps)):
        optimizer = make(values)  # anew in each step, for values that change
        if state is None:
            state = optimizer.init(params)
            if not is_fresh(proof):
                state, params = begun(state, params)
        elif changed and is_own:
            state = state._replace(hyperparams={**state.hyperparams, **changed})
        elif changed:
            fresh = optimizer.init(params)
            state = jax.tree_util.tree_map(injected, state, fresh, is_leaf=_is_injected)
        grads = tree((name, gradient(gradients.get(name), x)) for name, x in start.items())
        if hasattr(optimizer, "step"):
            params, state = optimizer.step(params, state, grads)
        else:
            import optax

            updates, state = optimizer.update(grads, state, params)
            params = optax.apply_updates(params, updates)
        yield state, params


def _in_keras(cls: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    refuse_warm(proof)
    needs_x64 = proof.record.dtype == "float64"
    return _keras(lambda: cls(**steps[0]), proof, steps, needs_x64)


def _own_keras(level: str, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    def make() -> Any:
        from legacy_opt.recorded.keras import RecordedOptimizer

        values = dict(steps[0])
        rate = values.pop("learning_rate", None)
        found = {n for each in proof.gradients for n, x in each.items() if isinstance(x, Rows)}
        return RecordedOptimizer(proof.record, rate, level or "auto", values, sorted(found))

    return _keras(make, proof, steps, needs_x64=True, is_own=True)


def _keras(
    make: Any, proof: Proof, steps: Steps, needs_x64: bool, is_own: bool = False
) -> Iterator[Arrays]:
    import keras

    from legacy_opt.recorded.keras import state as keras_state

    start, dtype = proof.start.variables, proof.record.dtype
    mode = _x64(needs_x64) if keras.backend.backend() == "jax" else _denormals(proof)
    floatx = keras.config.floatx()  # the dtype of the learning rate
    with mode, _set(keras.config.set_floatx, dtype, floatx):
        variables = []
        for name, array in start.items():
            *scopes, last = name.split("/")
            with contextlib.ExitStack() as scope:
                for each in scopes:
                    scope.enter_context(keras.name_scope(each))
                variables.append(keras.Variable(array, dtype=dtype, name=last))
        optimizer = make()
        optimizer.build(variables)
        names = dict(zip(start, variables))
        if is_own and not is_fresh(proof):
            keras_state.load_state(optimizer, proof.start, names)
        for gradients, changed in zip(proof.gradients, changes(steps, ("learning_rate", "lr"))):
            for rate in changed.values():
                optimizer.learning_rate = rate
            grads = [dense(gradients.get(name), x) for name, x in start.items()]
            tensors = [None if x is None else keras.ops.convert_to_tensor(x) for x in grads]
            optimizer.apply(tensors, variables)
            found = map(keras.ops.convert_to_numpy, variables)
            yield cast(dict(zip(start, found)), dtype)
        if is_own:
            yield by_slot(keras_state.state_of(optimizer, names).slots)


_KINDS = {"numpy": _in_numpy, "torch": _in_torch, "optax": _in_optax, "keras": _in_keras}
_OWN: Dict[str, Any] = {
    "numpy": lambda level, proof, steps: run(proof, slots=True),
    "native": lambda level, proof, steps: run(proof, optimizer_class=_native, slots=True),
    "torch": _own_torch,
    "jax": _own_jax,
    "optax": functools.partial(_own_jax, is_optax=True),
    "keras": _own_keras,
}
