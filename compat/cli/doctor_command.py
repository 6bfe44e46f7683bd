"""The command `legacy-opt doctor`, which prints versions, problems and their fixes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any, Dict, Iterator, List

from . import tables
from .diagnosis import FORMS, Facts, diagnose, pip_tf_keras, wheels

_TESTED = {"torch": "2.13.0", "jax": "0.12.0.1"}  # versions that `make leave` tests


def add_command(commands: Any):
    """Adds `doctor` to the command line."""
    parser = commands.add_parser("doctor", help="show what is installed and what is missing")
    parser.add_argument("--json", action="store_true", help="print the same facts as JSON")
    parser.set_defaults(run=execute)


def execute(arguments: argparse.Namespace) -> int:
    """Prints the diagnosis; returns 1 if a problem prevents the use of legacy_opt, else 0."""
    facts = diagnose()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        tables.show("\n".join(_lines(facts)).splitlines(), sys.stdout)
    return int(any(problem["level"] == "error" for problem in facts["problems"]))


def _lines(facts: Facts) -> Iterator[str]:
    """Yields the lines that show the diagnosis."""
    packages = facts["packages"]
    rows = [
        ("legacy_opt", "{version}  ({path})".format(**facts["legacy_opt"])),
        ("Python", "{version}  ({executable})".format(**facts["python"])),
        ("system", facts["python"]["platform"]),
        ("TensorFlow", _tensorflow_text(facts)),
    ]
    if facts["tensorflow"]["error"] is None:
        rows += [
            ("", _modes_text(facts["tensorflow"])),
            ("Estimators", facts["tensorflow"]["estimator"] or "yes"),
            ("tf.contrib", "yes" if facts["tensorflow"]["contrib"] else "no"),
            ("tf.keras", _keras_text(facts["keras"])),
            ("tf-keras", packages.get("tf-keras", "not installed")),
        ]
        rows += [("to_keras", text) for text in _to_keras_texts(facts)]
    rows += [(name, packages.get(name, "not installed")) for name in ("numpy", "protobuf")]
    rows += [(name, _recorded_text(facts, name)) for name in facts["recorded"]]
    rows += [("kernels", text) for text in _kernel_texts(facts["kernels"])]
    if facts["native"]:
        rows += [("native", text) for text in _native_texts(facts["native"])]
    previous = None
    for label, text in rows:
        shown_label = "" if label == previous else label
        yield f"{shown_label:<14}{text}".rstrip()
        previous = label
    yield ""
    for problem in facts["problems"]:
        yield f"{problem['level'].upper()}: {problem['text']}"
        if problem["fix"]:
            yield "  fix: " + problem["fix"]
    if not facts["problems"]:
        missing = facts["tensorflow"].get("estimator")
        note = " Estimators are missing (see above): only tf.estimator needs them."
        yield "No problems found." + (note if missing else "")


def _recorded_text(facts: Facts, name: str) -> str:
    """Returns whether recorded rules run on a library."""
    version = facts["packages"].get(name)
    if not version:
        return "not installed"
    state = facts["recorded"][name] or "recorded rules run"
    return f"{version}, tested with {_TESTED[name]}: {state}"


def _tensorflow_text(facts: Facts) -> str:
    version = facts["tensorflow"]["version"] or "cannot be used"
    return f"{version}  ({', '.join(wheels(facts)) or 'no wheel installed'})"


def _modes_text(facts: Facts) -> str:
    names = ("eager", "control_flow_v2", "resource_variables")
    words = [f"{name.replace('_', ' ')} {'on' if facts[name] else 'off'}" for name in names]
    count = sum(facts[name] for name in names)
    behaviour = {0: "v1 behaviour", 3: "v2 behaviour"}.get(count, "mixed behaviour")
    return f"{behaviour}: {', '.join(words)}"


def _keras_text(facts: Facts) -> str:
    legacy = facts["TF_USE_LEGACY_KERAS"]
    setting = "" if legacy is None else f"; TF_USE_LEGACY_KERAS={legacy}"
    if facts["error"] is not None:
        return "cannot be imported" + setting
    origins = {"tensorflow": "built into TensorFlow", "tf_keras": "from tf-keras"}
    origin = origins.get(facts["home"], "from the package keras")
    return "Keras {generation}: {version}, ".format(**facts) + origin + setting


def _to_keras_texts(facts: Facts) -> Iterator[str]:
    """Yields a line for each working `api`; if Keras 2 is missing, a line on how to install it."""
    errors = facts["to_keras"]
    for api in ("optimizer_v2", "keras3"):
        if errors[api] is None:
            note = ", the default" if api == errors["auto"] else ""
            yield f"api={api!r}{note}"
    if errors["auto"] == "keras3" and "tf-keras" not in facts["packages"]:
        yield "api='optimizer_v2' after " + pip_tf_keras(facts)


def _kernel_texts(kernels: Dict[str, List[str]]) -> Iterator[str]:
    """Yields a line for each group of kernels that exist in the same `FORMS`."""
    by_forms = {}
    for name, forms in kernels.items():
        by_forms.setdefault(tuple(forms), []).append(name)
    for forms in sorted(by_forms, key=len, reverse=True):
        heading = "all forms" if forms == FORMS else ", ".join(forms)
        yield f"{heading}: {', '.join(by_forms[forms])}"


def _native_texts(native: Facts) -> Iterator[str]:
    """Yields lines about compiled kernels."""
    if "error" in native:
        yield native["error"]
        return
    compilers = f"C compiler {native['c_compiler']}; C++ {native['cpp_compiler']}"
    yield f"setting {native['setting']}; {compilers}"
    yield f"operations: {native['operations']}"
    if isinstance(native["kernels"], int):  # otherwise, it is a text among the problems below
        yield f"{native['kernels']} compiled kernels in {native['folder']}"
        counts = "{with_kernels} of {all} updates, dense and sparse, have kernels, {stored} stored"
        yield counts.format(**native["updates"])
    if native["prebuilt"]:
        operations = ", ".join(native["prebuilt"]["operations"])
        kernels = native["prebuilt"]["kernels"]
        yield f"legacy-opt-native: {kernels} kernels, operations for {operations}"
    with_kernels = [name for name, reason in native["optimizers"].items() if reason is None]
    yield f"optimizers with kernels: {', '.join(with_kernels)}"
    for name, reason in native["optimizers"].items():
        if reason is not None:
            yield f"{name} has no kernel: {reason}"
