"""States of trainings by variable and slot, from files and objects of several libraries."""

from __future__ import annotations

import collections
import itertools
import re
import zipfile
from pathlib import Path
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Set, Tuple

import numpy as np

from legacy_opt.recorded import state_files
from legacy_opt.recorded.neighbours import slot_of_keras
from legacy_opt.recorded.proofs import runs
from legacy_opt.recorded.proofs.proof import ProofError
from legacy_opt.recorded.records import RecordError
from legacy_opt.recorded.state_files import SavedState

Key = Tuple[str, str]
TORCH, OPTAX, KERAS = "PyTorch", "optax", "Keras"
STEPS = ("global_step", "step", "iteration", "iter", "count", "last_epoch", "num_batches_tracked")
# The keys of a file of PyTorch under which programs save the weights.
_MODEL = ("model", "state_dict", "model_state_dict", "variables", "net", "module")
# Keys of parameter groups that choose an implementation of the same formula, or are no numbers.
_NO_VALUES = ("params", "param_names", "foreach", "fused", "capturable", "differentiable")
_WRAPPER = re.compile(r"(?:module|_orig_mod)\.")  # DistributedDataParallel, torch.compile
_MOST_OF_SPARSE = 256 << 20  # bytes of a sparse tensor as a dense one
_MOST_NUMBERS = 1_000_000
_PLACE = re.compile(r"\.(\w+)|\['([^']*)'\]|\[(\d+)\]")  # a step of a path, as JAX writes it


class State(NamedTuple):
    """The state of a training.

    Attributes:
      values: a dict from pairs to arrays, and to Python's values of hyperparameters. The pair is
        (variable, "") for a variable, (variable, slot) for a slot or a hyperparameter of this
        variable, and ("", name) for what all variables share.
      beside: the same for parts that a program may save and not restore: (part, name of a value),
        such as averages of weights, and schedulers.
      library: `TORCH`, `OPTAX`, `KERAS` or "".
      order: the names of the parameters in the order of PyTorch's optimizers; a parameter without
        a name is called "parameter 0".
      narrow: the dtypes that NumPy lacks, by pair; these values are float32.
      start: known initial values of slots and shared variables.
    """

    values: Dict[Key, Any]
    beside: Dict[Key, Any]
    library: str
    order: List[str]
    narrow: Dict[Key, str]
    start: Dict[str, Any]

    def add(self, variable: str, slot: str, value: Any, beside: bool = False) -> None:
        """Adds an array, tensor, number, or a list or dict of them; a ProofError if it has one."""
        if isinstance(value, (list, tuple)):
            for i, each in enumerate(value):
                self.add(variable, f"{slot}[{i}]", each, beside)
            return
        if isinstance(value, Mapping):
            for name, each in value.items():
                self.add(variable, f"{slot}.{name}", each, beside)
            return
        key, dtype = (variable, slot), str(getattr(value, "dtype", ""))
        if key in (self.beside if beside else self.values):
            raise ProofError(f"the state has two values for {label(key)!r}: rename one of them")
        if hasattr(value, "detach"):  # a tensor of PyTorch
            value, dtype = _dense(value, label(key)), dtype.rpartition(".")[2]
            has_dtype = hasattr(np, dtype) or dtype == "bool"
            value = np.array((value if has_dtype else value.float()).numpy())
        elif dtype:
            value = np.array(value)
            has_dtype = value.dtype.kind != "V"  # of the package ml_dtypes
            value = value if has_dtype else value.astype("float32")
        if dtype and not has_dtype:
            self.narrow[key] = dtype
        if isinstance(value, np.ndarray) and value.dtype.kind in (
            "OSU" if value.ndim == 0 else "O"
        ):
            value = value.tolist()  # has no number
        is_rate = slot == "learning_rate" and np.ndim(value) == 0
        (self.beside if beside else self.values)[key] = float(value) if is_rate else value

    def names(self) -> List[str]:
        """Returns the names of the variables, in order."""
        return list(dict.fromkeys(name for name, _ in self.values if name))

    def without_scope(self) -> State:
        """Returns the state without a scope that all names begin with."""
        cut = {name: name.partition("/")[2] for name in self.names()}
        scopes = {name.partition("/")[0] for name in cut}
        return self.renamed(cut if len(scopes) == 1 and all(cut.values()) else {}, {})

    def slots(self) -> Set[str]:
        """Returns the names of the slots and hyperparameters of variables."""
        return {slot for name, slot in self.values if name and slot}

    def renamed(self, names: Mapping[str, Optional[str]], slots: Mapping[str, str]) -> State:
        """Returns the state with other names; a variable that is renamed to None is left out."""

        def new(pairs: Mapping[Key, Any]) -> Dict[Key, Any]:
            found: Dict[Key, Any] = {}
            origins: Dict[Key, Key] = {}
            for (n, s), value in pairs.items():
                name, key = names.get(n, n), (names.get(n, n) or "", slots.get(s, s))
                if name is None:
                    continue
                if key in found:
                    both = f"{label(origins[key])!r} and {label((n, s))!r}"
                    raise ProofError(f"{both} would both be named {label(key)!r}")
                found[key], origins[key] = value, (n, s)
            return found

        start = {slots.get(name, name): value for name, value in self.start.items()}
        return self._replace(values=new(self.values), narrow=new(self.narrow), start=start)


def label(key: Key) -> str:
    """Returns the name of a value for users."""
    return " of ".join(each for each in reversed(key) if each)


def _dense(tensor: Any, name: str) -> Any:
    """Returns a tensor on the CPU; a ProofError if it needs much more memory than its content."""
    nbytes = tensor.numel() * tensor.element_size()
    is_dense = str(tensor.layout) == "torch.strided"
    storage = getattr(tensor, "untyped_storage", tensor.storage)  # before PyTorch 2
    if nbytes > (storage().nbytes() if is_dense else _MOST_OF_SPARSE):
        raise ProofError(
            f"{name!r} would need {nbytes:,} bytes of memory, which its content does not have: "
            "save its contiguous() tensor"
        )
    tensor = tensor.detach().cpu()
    return tensor if is_dense else tensor.to_dense()


def empty(library: str = "") -> State:
    """Returns a state without values."""
    return State({}, {}, library, [], {}, {})


def state_of(source: Any, is_after: bool = False) -> State:
    """Returns the state that a file or an object has; see `resume` for what may be passed.

    Of a file with a recorded training, it is the last state, or the start if `is_after`.

    Raises:
      ProofError: the source is of another kind, or cannot be read.
    """
    if isinstance(source, State):
        return source
    try:
        return _state_of(source, is_after)
    except RecordError as error:
        name = f"{str(source)!r}"
        if not hasattr(source, "__fspath__") and not isinstance(source, str) or name in str(error):
            raise
        raise ProofError(f"{name}: {error}") from error
    except Exception as error:  # content of others may cause any error
        raise unreadable(source, error) from error


def unreadable(source: Any, error: Exception) -> ProofError:
    """Returns the error for a source that caused another error."""
    is_path = isinstance(source, str) or hasattr(source, "__fspath__")
    name = repr(str(source)) if is_path else type(source).__name__
    text = " ".join(str(error).split())[:200]
    return ProofError(f"{name}: it cannot be read ({type(error).__name__}: {text})")


def _state_of(source: Any, is_after: bool) -> State:
    if isinstance(source, SavedState):
        return _of_saved(source)
    if isinstance(source, str) or hasattr(source, "__fspath__"):
        return _of_file(Path(source), is_after)
    if hasattr(source, "weights") and hasattr(source, "optimizer"):
        return _of_keras(source)
    return _of_torch(source) if _is_of_torch(source) else _of_tree(source)


def _of_file(path: Path, is_after: bool) -> State:
    name = repr(str(path))
    if not path.is_file():
        raise ProofError(f"{name}: there is no such file")
    members = zipfile.ZipFile(str(path)).namelist() if zipfile.is_zipfile(str(path)) else []
    if path.suffix in (".pt", ".pth", ".bin") or any(x.endswith("/data.pkl") for x in members):
        return _of_torch(_loaded(path))
    if {"run.npy", "proof.npy"} & set(members):
        proofs = list(runs.read(path).proofs.values())
        state = proofs[0].start if is_after else proofs[0].last
        if len(proofs) > 1 or state is None:
            raise ProofError(f"{name} must have one optimizer and its last state")
        return _of_saved(state)
    if state_files.RECORD + ".npy" in members or path.suffix == ".safetensors":
        return _of_saved(state_files.read(path))
    if members and all(each.endswith(".npy") for each in members):
        return _of_tree(state_files.load_npz(str(path), path.stat().st_size))
    raise ProofError(f"{name} is no file of PyTorch, state file or recorded training")


def _loaded(path: Path) -> Any:
    try:
        import torch
    except ImportError as error:
        raise ProofError(f"{str(path)!r} needs PyTorch: pip install torch") from error
    if zipfile.is_zipfile(str(path)):
        with zipfile.ZipFile(str(path)) as archive:
            state_files.unpacked(archive, path.stat().st_size)
    try:
        return torch.load(str(path), map_location="cpu", weights_only=True)
    except Exception as error:  # a damaged file may cause any error
        text = " ".join(str(error).split())[:200]
        if "weights_only" in text or "Weights only" in text:  # PyTorch advises to run the file
            text = "it contains other things than tensors and numbers"
        raise ProofError(
            f"{str(path)!r} cannot be read: save state_dicts alone ({text})"
        ) from error


def _of_saved(saved: SavedState) -> State:
    found = empty()
    for name, array in saved.variables.items():
        found.add(name, "", array)
        for slot, value in saved.slots.get(name, {}).items():
            found.add(name, slot, value)
    for name, value in saved.shared.items():
        found.add("", name, np.asarray(value))
    found.add("", state_files.GLOBAL_STEP, np.int64(saved.global_step))
    found.start.update((name, value) for name, value, _ in saved.record.starts)
    return found


def _is_of_torch(source: Any) -> bool:
    parts = [source, *source.values()] if isinstance(source, Mapping) else [source]
    return any(
        _is_optimizer(each) or hasattr(each, "detach") or hasattr(each, "named_parameters")
        for each in parts
    )


def _is_optimizer(part: Any) -> bool:
    return hasattr(part, "param_groups") or isinstance(part, Mapping) and "param_groups" in part


def _of_torch(source: Any) -> State:
    """Returns the state of a `state_dict`, or of a dict of several, or of objects that have one."""
    found = empty(TORCH)
    if _is_optimizer(source):
        source = {"optimizer": source}
    elif not isinstance(source, Mapping) or not any(map(_is_part, source.values())):
        source = {"model": source}
    model_key = next((key for key in _MODEL if key in source), None)
    model = {} if model_key is None else source[model_key]
    names = {id(p): n for n, p in getattr(model, "named_parameters", dict)() or ()}
    content = dict(_numbers(_state_dict(model)))
    for name, each in content.items():
        if name != _plain(name) and _plain(name) in content:
            raise ProofError(f"{name!r} and {_plain(name)!r} are the same variable: keep one")
        is_variable = hasattr(each, "detach")
        found.add(*((_plain(name), "") if is_variable else ("", name)), each)
    weights = source.get("names") or found.names()
    optimizers: Dict[str, Any] = {}
    for name, part in source.items():
        several = part if isinstance(part, (list, tuple)) else [part]
        if name == model_key:
            continue
        if several and all(map(_is_optimizer, several)):
            is_one = len(several) == 1
            optimizers.update(
                (str(name) if is_one else f"{name}[{i}]", x) for i, x in enumerate(several)
            )
        else:
            for key, each in _numbers(_state_dict(part)):
                found.add(str(name), _plain(key), each, beside=True)
    _add_optimizers(found, optimizers, names, weights)
    return found


def _is_part(value: Any) -> bool:
    return isinstance(value, (Mapping, list, tuple)) or hasattr(value, "state_dict")


def _plain(name: str) -> str:
    return _WRAPPER.sub("", name, 1) if _WRAPPER.match(name) else name


def _state_dict(part: Any) -> Any:
    return part.state_dict() if hasattr(part, "state_dict") else part


def _numbers(part: Any, name: str = "") -> List[Tuple[str, Any]]:
    """Returns the numbers and tensors of a tree of dicts and lists, with their names.

    In a small file, a dict may occur in others so often that the tree has billions of them.
    """
    found = list(itertools.islice(_leaves(part, name), _MOST_NUMBERS + 1))
    if len(found) > _MOST_NUMBERS:
        raise ProofError(f"the state has more than {_MOST_NUMBERS:,} values")
    return [(name, value) for name, value in found if value is not None]


def _leaves(part: Any, name: str) -> Iterator[Tuple[str, Any]]:
    """Yields what `_numbers` returns, and None for empty dicts and lists."""
    if isinstance(part, (Mapping, list, tuple)):
        pairs = part.items() if isinstance(part, Mapping) else enumerate(part)
        if not part:
            yield name, None
        for key, each in pairs:
            yield from _leaves(each, f"{name}.{key}" if name else str(key))
    elif hasattr(part, "detach") or isinstance(part, (bool, str)):
        yield name, part
    elif type(part) in (int, float):
        yield name, np.asarray(part)


def _add_optimizers(
    found: State, optimizers: Mapping[str, Any], names: Any, weights: List[str]
) -> None:
    """Adds optimizers; the slots of those with a parameter in common begin with their names."""
    all_labels: Dict[str, List[str]] = {}
    for name, optimizer in optimizers.items():
        content = _state_dict(optimizer)
        labels = _labels(optimizer, content, names, weights, found)
        count = sum(len(group["params"]) for group in content["param_groups"])
        labels = labels or [f"parameter {len(found.order) + i}" for i in range(count)]
        found.order.extend(labels)
        all_labels[name] = labels
    uses = collections.Counter(x for labels in all_labels.values() for x in set(labels))
    for name, labels in all_labels.items():
        prefix = f"{name} " if any(uses[x] > 1 for x in labels) else ""
        _add_optimizer(found, name, prefix, _state_dict(optimizers[name]), labels)


def _add_optimizer(found: State, own: str, prefix: str, content: Any, labels: List[str]) -> None:
    numbers = [number for group in content["param_groups"] for number in group["params"]]
    name_of = dict(zip(numbers, labels))
    for number, slots in content["state"].items():
        if not isinstance(slots, Mapping):
            for key, value in _numbers(slots, f"state.{number}"):
                found.add(own, key, value, beside=True)
            continue
        for slot, value in slots.items():
            if value is not None:  # the step is a number in old versions
                is_number = type(value) in (int, float)
                value = np.asarray(value) if is_number else value
                found.add(name_of[number], f"{prefix}{slot}", value)
    for group in content["param_groups"]:
        for name, (key, value) in itertools.product(
            map(name_of.get, group["params"]), group.items()
        ):
            if key not in _NO_VALUES:
                found.add(str(name), f"{prefix}{key}", _hyperparameter(value))
    others = {key: x for key, x in content.items() if key not in ("state", "param_groups")}
    for key, value in _numbers(others):
        found.add(own, key, value, beside=True)


def _hyperparameter(value: Any) -> Any:
    """Returns a number instead of a tensor of one element."""
    if isinstance(value, (list, tuple)):
        return [_hyperparameter(each) for each in value]
    return value.item() if hasattr(value, "detach") and value.numel() == 1 else value


def _labels(
    optimizer: Any, content: Any, names: Any, weights: List[str], found: State
) -> List[str]:
    """Returns the names of the parameters; [] if they are unknown.

    With several groups of parameters, their order is another than that of the weights.
    """
    groups = content["param_groups"]
    live = [p for group in getattr(optimizer, "param_groups", ()) for p in group["params"]]
    saved = [name for group in groups for name in group.get("param_names") or [None]]
    for labels in [names.get(id(p)) for p in live] or [None], saved:
        if None not in labels:
            return [_plain(str(name)) for name in labels]
    labels = [x for x in weights if not x.endswith(("running_mean", "running_var", "_tracked"))]
    shapes = [np.shape(found.values.get((name, ""), ())) for name in labels]
    slots = [content["state"].get(number, {}) for number in groups[0]["params"]]
    fits = (
        len(groups) == 1
        and len(labels) == len(slots)
        and all(
            tuple(getattr(x, "shape", ())) in ((), shape)
            for shape, each in zip(shapes, slots)
            for x in (each.values() if isinstance(each, Mapping) else ())
        )
    )
    return labels if fits else []


def _of_keras(model: Any) -> State:
    """Returns the state of a compiled model of Keras 3."""
    found = empty(KERAS)
    for each in model.weights:
        found.add(each.path, "", each.numpy())
    longest_first = sorted(found.names(), key=len, reverse=True)
    for i, each in enumerate(model.optimizer.variables):
        # A path without a scope is numbered: "variable_3".
        path = each.path if "/" in each.path else f"variable {i}"
        found.add(*slot_of_keras(path, longest_first), each.numpy())
    return found


def _of_tree(source: Any) -> State:
    """Returns the state of a tree of arrays of JAX, such as {"params": …, "opt_state": …}."""
    if isinstance(source, Mapping) and all(hasattr(x, "dtype") for x in source.values()):
        pairs = [(str(name), value) for name, value in source.items()]
        if state_files.RECORD in source:
            return _of_saved(state_files.state_from({n: np.asarray(x) for n, x in pairs}))
    else:
        try:
            import jax
        except ImportError as error:
            raise ProofError(f"{type(source).__name__} needs JAX: pip install jax") from error
        found = jax.tree_util.tree_flatten_with_path(source)[0]
        pairs = [(jax.tree_util.keystr(path), value) for path, value in found]
    if not pairs:
        raise ProofError(f"{type(source).__name__} has no arrays")
    state = empty(OPTAX)
    for name, value in pairs:
        _add_leaf(state, name, value)
    return state


def _add_leaf(state: State, text: str, value: Any) -> None:
    """Adds a leaf of a tree: its last attribute is the slot, and the keys after it the variable."""
    steps = list(_PLACE.finditer(text))
    last = max((i for i, step in enumerate(steps) if step.group(1)), default=-1)
    slot = steps[last].group(1) if last >= 0 else ""
    keys = [step.group(2) or step.group(3) for step in steps[last + 1 :]]
    if last < 0 and steps and (keys[0] == "params" or not text.startswith("[")):
        keys = keys[1:] if keys[0] == "params" else keys  # {"params": …}, or "params['w']"
    variable, slot = "/".join(keys) if steps else text, "" if slot == "params" else slot
    if slot == "hyperparams":  # of `optax.inject_hyperparams`
        name = text if ("", variable) in state.values else variable  # of a second one
        state.add("", name, np.asarray(value).item())
        return
    if (variable, slot) in state.values:  # such as a second `count`
        slot = text[: steps[last].end()]
    state.add(variable, slot, value if hasattr(value, "dtype") else np.asarray(value))
