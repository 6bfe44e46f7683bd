"""Makes the optimizers of each library call a `Recorder` before and after each step."""

from __future__ import annotations

import copy
import functools
from typing import Any, Iterator, Mapping, NamedTuple, Sequence, Tuple

import numpy as np

from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs.proof import Arrays, ProofError


class Seen(NamedTuple):
    """What an optimizer has before or after a step; in PyTorch, a parameter group."""

    variables: Arrays  # copies
    gradients: Mapping[str, Any]  # copies, or `Rows`
    hyperparameters: Mapping[str, Any]  # by the names of the library, also what is no number
    is_first: bool  # whether no step was made


def _add(arrays: Arrays, name: str, array: np.ndarray) -> None:
    if name in arrays:
        raise ProofError(f"two variables have the name {name!r}: pass other names")
    if array.dtype != np.float32:
        raise ProofError(f"{name!r} is of {array.dtype}: only float32 can be recorded")
    arrays[name] = array


def of_torch(recorder: Any, optimizer: Any) -> None:
    """Adds hooks to an optimizer of PyTorch."""
    import torch

    def array(tensor: Any) -> np.ndarray:
        if tensor.dtype == torch.bfloat16:  # which NumPy does not have
            raise ProofError("a parameter is of bfloat16: only float32 can be recorded")
        return tensor.detach().cpu().numpy().copy()

    def gradient(tensor: Any) -> Any:
        if not tensor.is_sparse:
            return array(tensor)
        if tensor.sparse_dim() != 1:
            raise ProofError("a sparse gradient with several axes of ids cannot be recorded")
        return Rows(array(tensor._indices()[0]), array(tensor._values()))

    def seen() -> Iterator[Seen]:
        from legacy_opt.recorded.torch import in_tensorflow, named

        count = 0
        for group in optimizer.param_groups:
            variables, gradients, is_first = {}, {}, True
            for own_name, parameter in named(group):
                name, axes = recorder.name_of(parameter, own_name or count), group.get("axes")
                _add(variables, name, array(in_tensorflow(parameter, axes)))
                if parameter.grad is not None:
                    gradients[name] = gradient(in_tensorflow(parameter.grad, axes))
                # Without a "step", the first step makes the state.
                state, count = optimizer.state.get(parameter, {}), count + 1
                is_first &= not group.get("global_step", state.get("step", len(state)))
            given = {x: y for x, y in group.items() if x not in ("params", "initial_lr")}
            # A scheduler may change a tensor in place.
            yield Seen(variables, gradients, copy.deepcopy(given), is_first)

    def before(_: Any, args: Any, kwargs: Any) -> None:
        if any(each is not None for each in (*args[1:], *kwargs.values())):
            raise ProofError("a closure cannot be recorded: call backward(), and step() without it")
        if getattr(optimizer, "grad_scale", None) is not None:
            raise ProofError("a fused step divides by the loss scale itself: pass fused=False")
        recorder.before([*seen()])

    recorder.flushes_denormals = not (torch.tensor(1e-40, dtype=torch.float32) * 1).item()
    optimizer.register_step_pre_hook(before)
    optimizer.register_step_post_hook(lambda *_: recorder.after([*seen()]))


def of_keras(recorder: Any, optimizer: Any) -> None:
    """Replaces the method that makes a step, of an optimizer of Keras 2 or 3."""
    method = "apply" if hasattr(optimizer, "apply") else "apply_gradients"
    original = getattr(optimizer, method)

    @functools.wraps(original)
    def recorded(given: Any, *args: Any, **kwargs: Any) -> Any:
        given = list(given)
        if method == "apply":
            gradients, variables = given, [*args, *kwargs.values(), optimizer._trainable_variables]
            variables = variables[0]
        else:
            gradients, variables = zip(*given)
        recorder.before([_seen_in_keras(recorder, optimizer, gradients, variables)])
        result = original(given, *args, **kwargs)
        recorder.after([_seen_in_keras(recorder, optimizer, gradients, variables)])
        return result

    vars(optimizer)[method] = recorded  # Keras would track an attribute that is assigned


def _seen_in_keras(
    recorder: Any, optimizer: Any, gradients: Sequence[Any], variables: Sequence[Any]
) -> Seen:
    arrays, grads = {}, {}
    for gradient, variable in zip(gradients, variables):
        name = getattr(variable, "path", None) or variable.name.partition(":")[0]
        name = recorder.name_of(variable, name)
        _add(arrays, name, _array_of_keras(variable))
        is_sparse = hasattr(gradient, "indices") and hasattr(gradient, "values")
        if is_sparse and not callable(gradient.indices):  # PyTorch's tensors have such methods
            grads[name] = Rows(*map(_array_of_keras, (gradient.indices, gradient.values)))
        elif gradient is not None:
            grads[name] = _array_of_keras(gradient)
    # The attribute of an OptimizerV2 may be a schedule; later ones in Keras 2 have an old value.
    getattr(optimizer, "_compute_current_learning_rate", lambda: None)()
    is_v2 = hasattr(optimizer, "_decayed_lr")
    rate = optimizer._decayed_lr("float32") if is_v2 else optimizer.learning_rate
    config = optimizer.get_config()
    values = {**config, **config.get("hyperparameters", {}), "learning_rate": _array_of_keras(rate)}
    return Seen(arrays, grads, values, not _array_of_keras(optimizer.iterations))


def _array_of_keras(value: Any) -> np.ndarray:
    value = getattr(value, "value", value)  # of a variable of Keras 3, in the scope of a trainer
    value = value() if callable(value) else value
    try:
        value = value.detach().cpu() if hasattr(value, "detach") else value
        return np.array(value.numpy() if hasattr(value, "numpy") else value)
    except Exception as error:  # each library has its own
        raise ProofError(
            "a compiled training cannot be recorded: pass run_eagerly=True to compile(), or train "
            "without tf.function and jax.jit"
        ) from error


def of_jax(recorder: Any, optimizer: Any) -> None:
    """Gives a recorder the methods of a transformation of optax or of a `JaxOptimizer`."""
    first = []

    def init(params: Any) -> Any:
        first.append(True)
        return optimizer.init(params)

    def update(updates: Any, state: Any, params: Any = None) -> Tuple[Any, Any]:
        import optax

        if params is None:
            raise ProofError("the recorder needs parameters: call update(gradients, state, params)")
        new_updates, new_state = optimizer.update(updates, state, params)
        record(params, updates, optax.apply_updates(params, new_updates), new_state)
        return new_updates, new_state

    def step(params: Any, state: Any, gradients: Any) -> Tuple[Any, Any]:
        new_params, new_state = optimizer.step(params, state, gradients)
        record(params, gradients, new_params, new_state)
        return new_params, new_state

    def record(params: Any, gradients: Any, new_params: Any, new_state: Any) -> None:
        # The new state has the values of schedules in this step.
        recorder.before([_seen_in_jax(params, gradients, new_state, bool(first))])
        recorder.after([_seen_in_jax(new_params, None, new_state, False)])

    recorder.init, recorder.update, recorder.step = init, update, step


def _seen_in_jax(params: Any, gradients: Any, state: Any, is_first: bool) -> Seen:
    import jax

    from legacy_opt.recorded import jax as recorded_jax

    if any(isinstance(x, jax.core.Tracer) for x in jax.tree.leaves((params, gradients))):
        raise ProofError("a compiled training cannot be recorded: train without jax.jit")
    leaves, tree = recorded_jax.leaves_of(params)
    grads = [None] * len(leaves) if gradients is None else tree.flatten_up_to(gradients)
    found = {
        name: Rows(*map(np.array, x)) if isinstance(x, recorded_jax.Rows) else np.array(x)
        for (name, _), x in zip(leaves, grads)
        if x is not None
    }
    values = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
        keys = [getattr(each, "name", getattr(each, "key", None)) for each in path]
        if "hyperparams" in keys:
            values[keys[-1]] = leaf
    arrays: Arrays = {}
    for name, x in leaves:
        _add(arrays, name, np.array(x))
    return Seen(arrays, found, values, is_first)
