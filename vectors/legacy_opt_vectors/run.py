"""Checks an implementation of an optimizer by the vectors; needs NumPy alone.

    python -m legacy_opt_vectors.run AdamOptimizer --with my_module:my_adam

`my_adam(variables, hyperparameters)` gets a dict of arrays and a dict of numbers, and returns a
function `step(gradients, hyperparameters)`, which changes the arrays in place. A gradient is an
array or, for a table of which a batch touches some rows, a pair (ids, rows); ids may be repeated,
and their rows are added. `hyperparameters` of a step may differ from those of the step before. Of
a training that begins late, they contain `global_step`, the number of completed steps.

The function may get the variables in float64, too: a second opinion, which tells formulas apart
that float32 cannot. Pass --float32 if it only takes float32.

Verdicts: EQUAL (each element has the value that the rule gives in float32), ROUNDING (the same
formula; last digits differ), DIFFERS (another formula, from this step and variable on). The exit
code is 0, 0 and 1; it is 2 if a file is damaged, or the function raises an error.
"""

import argparse
import hashlib
import importlib
import io
import json
import sys
from pathlib import Path

import numpy as np

FORMAT, VERSION = "legacy-opt proof", 1
# The largest error that rounding explains, as a multiple of the error bar, in float32 and in
# float64. In float64, only functions that compute parts in float32 come near it.
BOUND, WIDE_BOUND = 8.0, 3.0
_HASH = 64  # the digits of SHA-256 at the end of a file


def read(path):
    """Reads a vector.

    Returns:
      A pair: the JSON text as a dict, and a dict from names to arrays.

    Raises:
      ValueError: the file is damaged, or has another format.
    """
    content = Path(path).read_bytes()
    if hashlib.sha256(content[:-_HASH]).hexdigest().encode() != content[-_HASH:]:
        raise ValueError(f"{path} is damaged: its bytes do not have its hash")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        arrays = {name: file[name] for name in file.files}
    head = json.loads(arrays.pop("proof").tobytes().decode())
    if (head.get("format"), head.get("version")) != (FORMAT, VERSION):
        raise ValueError(f"{path} is not version {VERSION} of the format {FORMAT!r}")
    return head, arrays


def part(arrays, prefix):
    """Returns the arrays whose names begin with a prefix, by the rest of the name."""
    return {name[len(prefix) :]: each for name, each in arrays.items() if name.startswith(prefix)}


def gradients_of(head, arrays, dtype):
    """Returns the gradients: for each step, a dict from names of variables to gradients."""
    steps = [{} for _ in range(head["steps"])]
    for name, places in head["gradients"].items():
        if "gradient/" + name in arrays:
            found = arrays["gradient/" + name].astype(dtype)
        else:
            ends = np.cumsum(arrays["counts/" + name])[:-1]
            ids = np.split(arrays["ids/" + name], ends)
            rows = np.split(arrays["rows/" + name].astype(dtype), ends)
            found = list(zip(ids, rows))
        for place, gradient in zip(places, found):
            steps[place - 1][name] = gradient
    return steps


def hyperparameters_of(head, arrays):
    """Returns the hyperparameters: for each step, a dict from names to numbers."""
    numbers, completed = head["hyperparameters"], int(arrays["start/global_step"])
    found = []
    for i in range(head["steps"]):
        found.append({name: float.fromhex(texts[i]) for name, texts in numbers.items()})
        if completed:
            found[i]["global_step"] = completed + i
    return found


def train(make, head, arrays, dtype):
    """Trains; returns the variables after the steps in `head["ends"]`, dicts by step."""
    start = part(arrays, "start/variable/")
    variables = {name: each.astype(dtype) for name, each in start.items()}
    hyperparameters = hyperparameters_of(head, arrays)
    step = make(variables, dict(hyperparameters[0]))
    ends = {}
    for number, gradients in enumerate(gradients_of(head, arrays, dtype), start=1):
        step(dict(gradients), dict(hyperparameters[number - 1]))
        for gradient in gradients.values():  # a function must copy what it keeps
            (gradient[1] if isinstance(gradient, tuple) else gradient)[...] = 0
        found = {name: np.array(each, dtype) for name, each in variables.items()}
        for name, each in start.items():
            is_complex = np.iscomplexobj(variables.get(name))
            if name not in found or found[name].shape != each.shape or is_complex:
                raise ValueError(f"{name!r} must stay real numbers of the shape {each.shape}")
        if number in head["ends"]:
            ends[number] = {name: found[name] for name in start}
    return ends


def ratio(found, expected, exact, bars):
    """Returns the largest error as a multiple of the error bar.

    Where the expected or found value is infinite or NaN, both must be equal.
    """
    with np.errstate(all="ignore"):
        exact = np.where(np.isfinite(exact), exact, expected)
        error = np.abs(found.astype("float64") - exact) / bars
    unequal = np.where(equal(expected, found), 0.0, np.inf)
    is_finite = np.isfinite(expected) & np.isfinite(found)
    return float(np.max(np.where(is_finite, error, unequal)))


def equal(one, other):
    """Returns where two arrays are equal; NaN is equal to NaN."""
    return (one == other) | (np.isnan(one) & np.isnan(other))


def largest(ends, arrays, expected, bound):
    """Returns (ratio, step, variable) of the first error above the bound, or of the largest."""
    errors = []
    for step, variables in sorted(ends.items()):
        for name, found in variables.items():
            stored = [arrays[f"{each}/{step}/{name}"] for each in (expected, "exact", "bars")]
            errors.append((ratio(found, *stored), step, name))
    return next((each for each in errors if each[0] > bound), max(errors))


def judge(make, path, is_float32=False):
    """Returns the verdict on an implementation, and a sentence that says why."""
    head, arrays = read(path)
    ends = train(make, head, arrays, "float32")
    error = largest(ends, arrays, "values", BOUND)
    if all(
        equal(found, arrays[f"values/{step}/{name}"]).all()
        for step, variables in ends.items()
        for name, found in variables.items()
    ):
        return "EQUAL", ""
    is_rounding = error[0] <= BOUND
    if is_rounding and not is_float32:
        wide = largest(train(make, head, arrays, "float64"), arrays, "exact", WIDE_BOUND)
        is_rounding = wide[0] <= WIDE_BOUND
        error = error if is_rounding else wide
    verdict = "ROUNDING" if is_rounding else "DIFFERS"
    return verdict, "in step {1}, {2} is {0:.3g} error bars away".format(*error)


def main(argv=None):
    """Runs the program, and returns the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rule", help="the name of a rule, such as AdamOptimizer")
    parser.add_argument("--with", dest="function", required=True, metavar="MODULE:FUNCTION")
    parser.add_argument("--folder", type=Path, default=Path(__file__).with_name("data"))
    parser.add_argument("--float32", action="store_true", help="without a training in float64")
    arguments = parser.parse_args(argv)
    known = {}
    for path in sorted(arguments.folder.glob("*.npz")):
        known.setdefault(path.name.partition("-")[0], []).append(path)
    if arguments.rule not in known:
        found = ", ".join(known) or f"no vectors are in {arguments.folder}"
        print(f"there is no rule {arguments.rule!r}, but {found}", file=sys.stderr)
        return 2
    sys.path.insert(0, "")
    verdicts = set()
    for path in known[arguments.rule]:
        try:
            module, _, name = arguments.function.partition(":")
            make = getattr(importlib.import_module(module), name)
            verdict, why = judge(make, path, arguments.float32)
        except (Exception, SystemExit) as error:
            why = " ".join(f"{type(error).__name__}: {error}".split())
            verdict = "cannot be judged"
        verdicts.add(verdict)
        print(f"{path.stem}: {verdict}{why and ', '}{why}")
    if "cannot be judged" in verdicts:
        return 2
    return int("DIFFERS" in verdicts)


if __name__ == "__main__":
    sys.exit(main())
