"""Chooses the arguments of a class or function by the names of hyperparameters."""

from __future__ import annotations

import ast
import inspect
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence

import numpy as np

from legacy_opt.core.nearest_names import did_you_mean
from legacy_opt.recorded.arrays.interpreter import given_hyperparameters
from legacy_opt.recorded.proofs.drawing import USUAL
from legacy_opt.recorded.proofs.proof import Proof, ProofError
from legacy_opt.recorded.records import Record


class Arguments(NamedTuple):
    """The arguments of each step, and notes about them for a reader of the verdict.

    `constants` are the numbers among the values that are no hyperparameters, such as defaults.
    """

    steps: List[Dict[str, Any]]
    notes: List[str]
    constants: Sequence[float] = ()


def arguments_of(function: Callable[..., Any], proof: Proof, given: Mapping[str, str]) -> Arguments:
    """Returns the arguments of a class or function; `given` is the `mapping` of `targets.find`.

    Raises a ProofError if an argument has no value, or `given` has an unknown name.
    """
    fixed = {name: scalar.value for name, scalar in proof.record.fixed.items()}
    steps: List[Dict[str, Any]] = [{**fixed, **each} for each in proof.hyperparameters]
    parameters = inspect.signature(function).parameters.values()
    defaults = {each.name: each.default for each in parameters if each.kind not in (2, 4)}
    unknown = set(given) - set(defaults)
    if unknown and not any(each.kind == each.VAR_KEYWORD for each in parameters):
        name = min(unknown)
        raise ProofError(f"there is no argument {name!r}.{did_you_mean(name, defaults)}")
    sources = {}
    for name in defaults:
        usual = [source for argument, source in USUAL if argument == name]
        for source in [name] if name in steps[0] else usual:
            parts = {*source.split(",")}
            if parts <= {*steps[0]} and (source == name or parts.isdisjoint(defaults)):
                sources.setdefault(name, source)
    for name, value in proof.made.get("arguments", {}).items():  # of a recorded constructor
        if name in defaults and (name not in sources or name in fixed):
            sources[name] = repr(value)
    if "global_step" in defaults:
        sources["global_step"] = "None"  # targets of TensorFlow replace it
    sources.update(given)
    # A constructor may have computed a fixed value from its argument.
    guessed = [name for name in fixed if sources.get(name) == name and name not in given]
    guessed = [name for name in guessed if fixed[name] != _rounded(defaults[name])]
    if guessed:
        maps = " ".join(f"--map {name}=…" for name in guessed)
        raise ProofError(f"the rule does not know what these arguments were: pass {maps}")
    missing = [name for name in defaults if name not in sources]
    needed = [name for name in missing if defaults[name] is inspect.Parameter.empty]
    if needed:
        raise ProofError(f"the argument {needed[0]!r} has no value: pass --map {needed[0]}=…")
    if not sources and proof.record.hyperparameters:
        raise ProofError("no argument gets a hyperparameter: pass --map ARGUMENT=SOURCE")
    used = {name for source in sources.values() for name in source.split(",")}
    notes = {
        "arguments": [f"{name}={source}" for name, source in sources.items()],
        "arguments with their defaults": [f"{name}={defaults[name]!r}" for name in missing],
        "hyperparameters without an argument": sorted(set(steps[0]) - used),
    }
    others = [source for source in sources.values() if not {*source.split(",")} <= {*steps[0]}]
    values = [*(defaults[name] for name in missing), *(_value(x, steps[0]) for x in others)]
    numbers = [x for each in values for x in (each if isinstance(each, tuple) else [each])]
    return Arguments(
        [{name: _value(source, each) for name, source in sources.items()} for each in steps],
        [f"{what}: {', '.join(each)}" for what, each in notes.items() if each],
        [float(x) for x in numbers if isinstance(x, (int, float)) and np.isfinite(x)],
    )


def values_of(record: Record, given: Mapping[str, Any]) -> Dict[str, Any]:
    """Returns the hyperparameters of a record, from the arguments of another library."""
    pairs = [*USUAL, *([name] * 2 for name in record.hyperparameters)]
    known = {source: given[name] for name, source in pairs if name in given}
    found = {name: known[name] for name in record.hyperparameters if name in known}
    return given_hyperparameters(record, found)


def _rounded(value: Any) -> Any:
    return float(np.float32(value)) if isinstance(value, (int, float)) else value


def _value(source: str, hyperparameters: Mapping[str, Any]) -> Any:
    names = source.split(",")
    if all(each in hyperparameters for each in names):
        values = tuple(hyperparameters[each] for each in names)
        return values if len(names) > 1 else values[0]
    try:
        return ast.literal_eval(source)
    except (ValueError, SyntaxError):
        known = ", ".join(hyperparameters)
        raise ProofError(f"{source!r} is no constant and none of {known}") from None


def changes(steps: Sequence[Mapping[str, Any]], allowed: Any = None) -> Iterator[Dict[str, Any]]:
    """Yields for each step the arguments that differ from those of the step before.

    Raises a ProofError if an argument changes that is not in `allowed`, if this is not None.
    """
    for values, before in zip(steps, [steps[0], *steps]):
        changed = {name: value for name, value in values.items() if value != before[name]}
        for name in changed if allowed is not None else ():
            if name not in allowed:
                raise ProofError(f"{name!r} changes between steps, but only {allowed} can")
        yield changed
