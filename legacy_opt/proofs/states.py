"""States of trainings by variable and slot, from files and objects of several libraries."""

from __future__ import annotations

import contextlib
import re
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple, Type

import numpy as np

from legacy_opt.durable_files import PathLike
from legacy_opt.recorded import state_files
from legacy_opt.recorded.proofs import runs
from legacy_opt.recorded.proofs.proof import Proof, ProofError
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState

Key = Tuple[str, str]
STEPS = ("global_step", "step", "iteration", "iter", "count", "last_epoch", "num_batches_tracked")
# The keys of a file of PyTorch under which programs save the weights.
_MODEL = ("model", "state_dict", "model_state_dict", "variables", "net", "module")
# Keys of parameter groups that choose an implementation of the same formula, or are no numbers.
_NO_VALUES = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")
_WRAPPER = re.compile(r"^(?:module|_orig_mod)\.")  # DistributedDataParallel, torch.compile
_MOST_OF_SPARSE = 256 << 20  # bytes of a sparse tensor as a dense one
_MOST_VALUES = 1_000_000
_PLACE = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")  # a step of a path, as JAX writes it


class State:
    """The state of a training.

    Attributes:
      library: "TensorFlow", "Keras", "PyTorch" or "JAX".
      values: a dict from pairs to arrays: (variable, "") for a variable, (variable, slot) for a
        slot or hyperparameter, ("", name) for what all variables share, (part, name) of `parts`.
      dtypes: the dtypes by pair, which NumPy may lack; "" for numbers and texts of Python.
      order: the names of the parameters in the order of PyTorch's optimizers, or "parameter 0" ….
      parts: names of what a program may save and not restore, such as averages and schedulers.
    """

    def __init__(self, library: str) -> None:
        self.library = library
        self.values: Dict[Key, np.ndarray] = {}
        self.dtypes: Dict[Key, str] = {}
        self.order: List[str] = []
        self.parts: List[str] = []
        self._count = 0  # of a small file, too: a dict may occur in others billions of times

    def add(self, variable: str, slot: str, value: Any) -> None:
        """Adds an array, tensor, number or text, or all in a list or dict."""
        for name, leaf in _leaves(value, slot):
            self._count += 1
            if self._count > _MOST_VALUES:
                raise ProofError(f"the state has more than {_MOST_VALUES:,} values")
            if leaf is None:
                continue
            key = variable, name
            if key in self.values:
                raise ProofError(f"the state has two values for {label(key)!r}: rename one of them")
            self.dtypes[key] = str(getattr(leaf, "dtype", "")).rpartition(".")[2]
            self.values[key] = _array(leaf, label(key))

    def add_part(self, name: str, value: Any) -> None:
        """Adds one of the `parts`."""
        self.parts.append(name)
        self.add(name, "", value)

    def names(self) -> List[str]:
        """Returns the names of the variables, also of those with slots alone, in order."""
        return list(dict.fromkeys(x for x, _ in self.values if x and x not in self.parts))

    def renamed(self, names: Mapping[str, Optional[str]]) -> State:
        """Returns the state with other names; a variable that is renamed to None is left out."""
        found, origins = State(self.library), {}
        found.parts = self.parts
        for (name, slot), value in self.values.items():
            new = names.get(name, name)
            if new is None:
                continue
            other = origins.setdefault((new, slot), name)
            if other != name:
                raise ProofError(f"{other!r} and {name!r} would both be named {new!r}")
            found.values[new, slot], found.dtypes[new, slot] = value, self.dtypes[name, slot]
        return found


def label(key: Key) -> str:
    """Returns the name of a value for users."""
    return " of ".join(each for each in reversed(key) if each)


def _leaves(value: Any, name: str = "") -> Iterator[Tuple[str, Any]]:
    """Yields the tensors, arrays, numbers and texts of a tree of dicts and lists, with names.

    Others, and empty dicts and lists, are None.
    """
    if isinstance(value, Mapping) and value:
        for key, each in value.items():
            yield from _leaves(each, f"{name}.{key}" if name else _WRAPPER.sub("", str(key)))
    elif isinstance(value, (list, tuple)) and value:
        for i, each in enumerate(value):
            yield from _leaves(each, f"{name}[{i}]")
    else:
        is_value = hasattr(value, "dtype") or isinstance(value, (bool, int, float, str))
        yield name, value if is_value else None


def _array(value: Any, name: str) -> np.ndarray:
    if not hasattr(value, "detach"):
        array = np.asarray(value)
        return array.astype("float32") if array.dtype.kind == "V" else array  # of ml_dtypes
    nbytes, is_dense = value.numel() * value.element_size(), str(value.layout) == "torch.strided"
    storage = getattr(value, "untyped_storage", value.storage)  # before PyTorch 2
    if nbytes > (storage().nbytes() if is_dense else _MOST_OF_SPARSE):
        text = f"{name!r} would need {nbytes:,} bytes of memory, which its content does not have"
        raise ProofError(f"{text}: save its contiguous() tensor")
    tensor = value.detach().cpu() if is_dense else value.detach().cpu().to_dense()
    dtype = str(tensor.dtype).rpartition(".")[2]
    return (tensor if hasattr(np, dtype) or dtype == "bool" else tensor.float()).numpy()


@contextlib.contextmanager
def reading(source: Any, *errors: Type[Exception]) -> Iterator[None]:
    """Raises a ProofError for an error of content of others, which may be any but `errors`."""
    try:
        yield
    except errors:
        raise
    except Exception as error:
        name = repr(str(source)) if _is_path(source) else type(source).__name__
        if isinstance(error, RecordError):
            if not _is_path(source) or name in str(error):
                raise
            raise ProofError(f"{name}: {error}") from error
        text = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise ProofError(f"{name}: it cannot be read ({text})") from error


def _is_path(source: Any) -> bool:
    return isinstance(source, str) or hasattr(source, "__fspath__")


def state_of(source: Any, is_after: bool = False) -> State:
    """Returns the state that a file or an object has; see `resume` for what may be passed.

    Of a file with a recorded training, it is the last state, or the start if `is_after`.

    Raises:
      ProofError: the source is of another kind, or cannot be read.
    """
    with reading(source):
        if isinstance(source, State):
            return source
        if isinstance(source, SavedState):
            return _of_saved(source)
        if _is_path(source):
            return _of_file(Path(source), is_after)
        parts = [source, *source.values()] if isinstance(source, Mapping) else [source]
        marks = "detach", "named_parameters"
        is_torch = any(hasattr(x, m) or _is_optimizer(x) for x in parts for m in marks)
        return _of_torch(source) if is_torch else _of_tree(source)


def _of_file(path: Path, is_after: bool) -> State:
    name = repr(str(path))
    if not path.is_file():
        raise ProofError(f"{name}: there is no such file")
    members = zipfile.ZipFile(str(path)).namelist() if zipfile.is_zipfile(str(path)) else []
    if path.suffix in (".pt", ".pth", ".bin") or any(x.endswith("/data.pkl") for x in members):
        return _of_torch(_loaded(path))
    if {"run.npy", "proof.npy"} & set(members):
        proof = only_proof(path)
        state = proof.start if is_after else proof.last
        if state is None:
            raise ProofError(f"{name} has no last state")
        return _of_saved(state)
    if state_files.RECORD + ".npy" in members or path.suffix == ".safetensors":
        return _of_saved(state_files.read(path))
    if members and all(each.endswith(".npy") for each in members):
        return _of_tree(state_files.load_npz(str(path), path.stat().st_size))
    raise ProofError(f"{name} is no file of PyTorch, state file or recorded training")


def only_proof(path: PathLike) -> Proof:
    """Returns the proof of a recorded training; a ProofError if it has several optimizers."""
    found = list(runs.read(path).proofs.values())
    if len(found) != 1:
        raise ProofError(f"{str(path)!r} must have one optimizer, and has {len(found)}")
    return found[0]


def _loaded(path: Path) -> Any:
    if zipfile.is_zipfile(str(path)):
        with zipfile.ZipFile(str(path)) as archive:
            state_files.unpacked(archive, path.stat().st_size)
    try:
        import torch

        return torch.load(str(path), map_location="cpu", weights_only=True)
    except ImportError as error:
        raise ProofError(f"{str(path)!r} needs PyTorch: pip install torch") from error
    except Exception as error:  # its text may advise to run code of the file
        text = "save state_dicts alone, without other things than tensors and numbers"
        raise ProofError(f"{str(path)!r} cannot be read: {text}") from error


def _of_saved(saved: SavedState) -> State:
    found = State("TensorFlow")
    for name, array in saved.variables.items():
        found.add(name, "", array)
        found.add(name, "", saved.slots.get(name, {}))
    found.add("", "", {**saved.shared, state_files.GLOBAL_STEP: np.int64(saved.global_step)})
    return found


def _is_optimizer(part: Any) -> bool:
    return hasattr(part, "param_groups") or isinstance(part, Mapping) and "param_groups" in part


def _state_dict(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


def _of_torch(source: Any) -> State:
    """Returns the state of a `state_dict`, or of a dict of several, or of objects that have one."""
    found = State("PyTorch")
    if _is_optimizer(source):
        source = {"optimizer": source}
    elif not isinstance(source, Mapping) or not any(
        isinstance(x, (Mapping, list, tuple)) or hasattr(x, "state_dict") for x in source.values()
    ):
        source = {"model": source}
    model_key = next((key for key in _MODEL if key in source), None)
    model = source.get(model_key, {})
    names = {id(p): name for name, p in getattr(model, "named_parameters", dict)()}
    for name, leaf in _leaves(_state_dict(model)):
        found.add(*((name, "") if hasattr(leaf, "detach") else ("", name)), leaf)
    parts: Dict[str, Any] = {}
    for name, part in source.items():
        if isinstance(part, (list, tuple)):
            parts.update((f"{name}[{i}]", each) for i, each in enumerate(part))
        elif name != model_key:
            parts[str(name)] = part
    weights = source.get("names") or [x for x in found.names() if not x.endswith(_BUFFERS)]
    for name, part in parts.items():
        if _is_optimizer(part):
            _add_optimizer(found, name, part, names, weights)
        else:
            found.add_part(name, _state_dict(part))
    return found


def _add_optimizer(
    found: State, own: str, optimizer: Any, names: Mapping[int, str], weights: List[str]
) -> None:
    content = _state_dict(optimizer)
    labels = _labels(optimizer, content, names, weights, found)
    numbers = [number for group in content["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, labels))
    found.order += labels
    for number, slots in content["state"].items():
        found.add(name_of[number], "", slots)
    for group in content["param_groups"]:
        values = {key: x for key, x in group.items() if key not in _NO_VALUES}
        values = {key: "None" if x is None else x for key, x in values.items()}
        for number in group["params"]:
            found.add(name_of[number], "", values)
    others = {key: x for key, x in content.items() if key not in ("state", "param_groups")}
    if others:
        found.add_part(own, others)


def _labels(
    optimizer: Any, content: Any, names: Mapping[int, str], weights: List[str], found: State
) -> List[str]:
    """Returns the names of the parameters; numbered ones if they are unknown."""
    groups = content["param_groups"]
    live = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
    saved = [name for group in groups for name in group.get("param_names") or [None]]
    for labels in [names.get(id(p)) for p in live], saved:
        if labels and None not in labels:
            return [_WRAPPER.sub("", str(name)) for name in labels]
    numbers = [number for group in groups for number in group["params"]]
    # With several groups of parameters, their order is another than that of the weights.
    slots = [[*content["state"].get(x, {}).values()] for x in numbers if len(groups) == 1]
    shapes = [{tuple(getattr(each, "shape", ())) for each in x} - {()} for x in slots]
    weight_shapes = {name: {np.shape(found.values.get((name, ""), ()))} for name in weights}
    first = len(found.order)
    return _in_order(shapes, weight_shapes) or [
        f"parameter {first + i}" for i in range(len(numbers))
    ]


def _in_order(shapes: List[Any], weights: Mapping[str, Any]) -> List[str]:
    """Returns the only choice of weights that have these shapes, in order; [] if there are more.

    Buffers and frozen weights lie between the weights that an optimizer trains.
    """
    choices = []
    for order in 1, -1:
        names = iter([*weights][::order])
        found = [next((x for x in names if each <= weights[x]), "") for each in shapes[::order]]
        choices.append(found[::order])
    return choices[0] if choices[0] == choices[1] and "" not in choices[0] else []


def _of_tree(source: Any) -> State:
    """Returns the state of a tree of arrays of JAX, such as {"params": …, "opt_state": …}."""
    if isinstance(source, Mapping) and all(hasattr(x, "dtype") for x in source.values()):
        pairs = [(str(name), value) for name, value in source.items()]
    else:
        import jax

        found = jax.tree_util.tree_flatten_with_path(source)[0]
        pairs = [(jax.tree_util.keystr(path), value) for path, value in found]
    state = State("JAX")
    for text, value in pairs:  # the last attribute is the slot, the keys after it the variable
        steps = list(_PLACE.finditer(text))
        last = max((i for i, step in enumerate(steps) if step.group(1)), default=-1)
        slot = steps[last].group(1) if last >= 0 else ""
        keys = [step.group(2) or step.group(3) for step in steps[last + 1 :]]
        if last < 0 and keys[:1] == ["params"]:  # {"params": …}
            keys = keys[1:]
        variable, slot = "/".join(keys) if steps else text, "" if slot == "params" else slot
        if slot == "hyperparams":  # of `optax.inject_hyperparams`
            variable, slot, value = "", variable, np.asarray(value).item()
        if (variable, slot) in state.values:  # such as a second `count`
            slot = text[: steps[last].end()] if variable else text
        state.add(variable, slot, value)
    return state
