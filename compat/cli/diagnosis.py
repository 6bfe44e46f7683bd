"""`diagnose`: lists installed packages and problems, and known commands that fix the problems.

TensorFlow is imported only inside functions, because TensorFlow may be missing or broken.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import sys
import tempfile
from typing import Any, Callable, Dict, Iterator, List, Optional

import legacy_opt

from .. import messages
from . import quiet

try:
    from importlib import metadata
except ImportError:  # Python 3.7
    metadata = None

Facts = Dict[str, Any]  # can be written as JSON
# Distributions that install the package `tensorflow`.
_TENSORFLOW_WHEELS = re.compile(
    r"(intel-)?tensorflow(-cpu|-gpu|-intel|-macos|-rocm|-cpu-aws|-aarch64)?$|tf-nightly(-cpu|-gpu)?$"
)
_NATIVE = "legacy-opt-native"
_LIBRARIES = ("torch", "jax")  # in which recorded rules run
_OTHER_PACKAGES = ("keras", "tf-keras", "tensorflow-estimator", "numpy", "protobuf", "h5py")
_USE_TENSORFLOW = "export KERAS_BACKEND=tensorflow"
_KERNEL = re.compile(r"(Resource)?(Sparse)?Apply(\w+)$")
# The forms of an update kernel: for ref or resource variables, and for dense or sparse gradients.
FORMS = ("ref dense", "ref sparse", "resource dense", "resource sparse")


def diagnose() -> Dict[str, Any]:
    """Reports the versions and problems of TensorFlow, Keras and legacy_opt in this Python.

    Returns:
      A JSON-serializable dict with the keys

      * `legacy_opt`, `python`, `tensorflow`, `keras`: versions and settings (`keras` and `to_keras`
        are None if TensorFlow cannot be imported);
      * `tensorflow["estimator"]`: None, or why there are no Estimators and how to install them;
        `tensorflow["graph_writer"]`: None, or the error when a graph is written as text;
      * `packages`: a dict from package names to versions;
      * `recorded`: a dict from "torch" and "jax" to None, or why recorded rules do not run there;
      * `to_keras`: a dict. The value of "auto" is the `api` that `to_keras` uses by default; the
        values of "optimizer_v2" and "keras3" are the errors that these two raise, or None;
      * `kernels`: a dict from kernel names to lists of their forms, such as "resource sparse";
      * `native`: None if TensorFlow cannot be imported, else a dict about native kernels with the
        keys `setting`, which applies to optimizers whose attribute `native` is None; `c_compiler`
        and `cpp_compiler`; `folder`, the path of the compiled kernels; `operations`, the path of
        the library that runs kernels; `kernels`, the number of kernels in the folder; `prebuilt`, a
        dict about the package legacy-opt-native, or None if it is not installed; `optimizers`, a
        dict from class names to None, or to the reason why there are no kernels for dense or sparse
        float32 gradients; and `updates`, the numbers of all updates, of updates with kernels, and
        of updates with stored kernels. The value for a missing compiler, folder or library is the
        reason. If nothing can be determined, the only key is `error`;
      * `problems`: a list of dicts with `level` ("error" or "warning"), `text` and `fix` (a
        command, or None).
    """
    facts: Dict[str, Any] = {
        "legacy_opt": {
            "version": legacy_opt.__version__,
            "path": os.path.dirname(os.path.abspath(legacy_opt.__file__)),
        },
        "python": {
            "version": platform.python_version(),
            "executable": sys.executable,
            "platform": platform.platform(),
        },
    }
    with quiet.silence():
        facts["packages"] = _packages()
        facts["recorded"] = {
            name: _error_of(importlib.import_module, "legacy_opt.recorded." + name)
            for name in _LIBRARIES
        }
        facts["tensorflow"] = _tensorflow()
        is_usable = facts["tensorflow"]["error"] is None
        facts["keras"] = _keras() if is_usable else None
        facts["to_keras"] = _to_keras(facts["keras"]) if is_usable else None
        facts["kernels"] = _kernels() if is_usable else {}
        facts["native"] = _native() if is_usable else None
    facts["problems"] = list(_problems(facts))
    return facts


def _packages() -> Dict[str, str]:
    if metadata is None:
        import pkg_resources

        installed = [(each.project_name, each.version) for each in pkg_resources.working_set]
    else:
        installed = [(each.metadata["Name"], each.version) for each in metadata.distributions()]
    names = [(name.lower().replace("_", "-"), version) for name, version in installed if name]
    packages = sorted((name.replace("keras-nightly", "keras"), version) for name, version in names)
    return {
        name: version
        for name, version in packages
        if name in (*_OTHER_PACKAGES, *_LIBRARIES, _NATIVE) or _TENSORFLOW_WHEELS.match(name)
    }


def _tensorflow() -> Facts:
    try:
        from legacy_opt import versions
    except Exception as error:  # a broken installation may raise any exception: report it
        return {"version": None, "error": _describe(error)}
    facts = {"version": versions.tensorflow_version(), "error": None}
    facts.update(versions.tensorflow_modes())
    facts.update(estimator=versions.estimator_problem(), contrib=versions.has_contrib())
    facts["graph_writer"] = _error_of(_write_graph)
    return facts


def _write_graph() -> None:
    """Writes a graph as text. TensorFlow 2.20 raises a TypeError with protobuf 7."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory() as folder:
        tf.io.write_graph(tf.Graph(), folder, "graph.pbtxt")


def _keras() -> Facts:
    from legacy_opt import versions

    try:
        facts: Dict[str, Any] = dict(versions.keras_facts(), error=None)
    except Exception as error:  # Keras may be missing or broken
        facts = {"version": None, "error": _describe(error)}
    facts.update({name: os.environ.get(name) for name in ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")})
    return facts


def _to_keras(keras: Any) -> Dict[str, Optional[str]]:
    from legacy_opt import versions

    return {
        "auto": {2: "optimizer_v2", 3: "keras3"}.get(keras.get("generation")),
        "optimizer_v2": _error_of(versions.optimizer_v2),
        "keras3": _error_of(versions.keras_3),
    }


def _error_of(function: Callable, *arguments: Any) -> Optional[str]:
    """Returns the error that a function raises, or None."""
    try:
        function(*arguments)
    except Exception as error:  # packages may be missing or broken
        return _describe(error)
    return None


def _kernels() -> Dict[str, List[str]]:
    tf = importlib.import_module("tensorflow")
    kernels = {}
    for match in filter(None, map(_KERNEL.match, dir(tf.raw_ops))):
        resource, sparse, name = match.groups()
        form = f"{'resource' if resource else 'ref'} {'sparse' if sparse else 'dense'}"
        kernels.setdefault(name, []).append(form)
    return {name: sorted(kernels[name]) for name in sorted(kernels)}


def _native() -> Facts:
    from . import native_diagnosis

    try:
        return native_diagnosis.facts()
    except Exception as error:  # an error here must not hide the other facts
        return {"error": _describe(error)}


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {messages.text_of(error) or 'no message'}"


def _problems(facts: Facts) -> Iterator[Facts]:
    installed = wheels(facts)
    error = facts["tensorflow"]["error"]
    if not installed and facts["tensorflow"]["version"] is None:
        yield _problem(
            "error",
            "TensorFlow is not installed.",
            "pip install tensorflow-cpu  (for GPUs, and on macOS: tensorflow)",
        )
    elif error is not None:
        yield _problem("error", "TensorFlow cannot be imported: " + error, _fix_for(error, facts))
    elif not facts["kernels"]:
        yield _problem("error", "This TensorFlow has no fused update kernels in tf.raw_ops.", None)
    elif facts["tensorflow"]["graph_writer"] is not None:
        yield _problem(
            "error",
            "TensorFlow cannot write graphs, as Estimators and MonitoredTrainingSession do: "
            + facts["tensorflow"]["graph_writer"],
            _fix_for(facts["tensorflow"]["graph_writer"], facts),
        )
    if len(installed) > 1:
        names = [wheel.split("==")[0] for wheel in installed]
        yield _problem(
            "warning",
            f"{' and '.join(installed)} are installed together and overwrite each other's files.",
            f"pip uninstall -y {' '.join(names)} && pip install {installed[-1]}",
        )
    if facts["keras"]:
        yield from _keras_problems(facts)
    yield from _native_problems(facts)


def _native_problems(facts: Facts) -> Iterator[Facts]:
    version = legacy_opt.__version__
    wheel = facts["packages"].get(_NATIVE)
    if wheel not in (None, version):
        text = f"{_NATIVE} {wheel} has the kernels of legacy-opt {wheel}, not of {version}."
        yield _problem("warning", text, f"pip install {_NATIVE}=={version}")
    kernels = (facts["native"] or {}).get("kernels")
    if isinstance(kernels, str):
        yield _problem("warning", kernels, None)


def _keras_problems(facts: Facts) -> Iterator[Facts]:
    keras = facts["keras"]
    to_keras = facts["to_keras"]
    packages = facts["packages"]
    has_keras2 = "tf-keras" in packages
    if keras["error"] is not None:
        text = "tf.keras cannot be imported: " + keras["error"]
        fix = None
        if keras["TF_USE_LEGACY_KERAS"] not in (None, "", "0"):
            fix = None if has_keras2 else pip_tf_keras(facts)
        elif keras["KERAS_BACKEND"] not in (None, "", "tensorflow"):
            fix = _USE_TENSORFLOW  # the package of the other backend may be missing
        yield _problem("warning", text, fix)
        return
    minor = ".".join(facts["tensorflow"]["version"].split(".")[:2])
    if has_keras2 and not packages["tf-keras"].startswith(minor + "."):
        text = f"tf-keras {packages['tf-keras']} does not work with TensorFlow {minor}."
        yield _problem("warning", text, pip_tf_keras(facts))
    if keras["backend"] != "tensorflow":
        text = f"Keras runs on {keras['backend']}; v1 optimizers need its TensorFlow backend."
        yield _problem("warning", text, _USE_TENSORFLOW)
    elif to_keras[to_keras["auto"]] is not None:
        text = "to_keras cannot make optimizers for tf.keras: " + to_keras[to_keras["auto"]]
        fix = "pip install -U keras" if to_keras["auto"] == "keras3" else None
        yield _problem("warning", text, fix)


def pip_tf_keras(facts: Facts) -> str:
    """Returns the command that installs tf-keras."""
    from legacy_opt import versions

    return versions.pip_command("tf-keras", version=facts["tensorflow"]["version"])


def _problem(level: str, text: str, fix: Optional[str]) -> Facts:
    return {"level": level, "text": text, "fix": fix}


def _fix_for(error: str, facts: Facts) -> Optional[str]:
    """Returns the command that repairs a known conflict of TensorFlow's wheels, or None."""
    numpy = facts["packages"].get("numpy", "0")
    if "float_format" in error:
        return 'pip install "protobuf<7"'
    if "Descriptors cannot" in error or "protobuf" in error:
        return 'pip install "protobuf<3.21"'
    if int(numpy.split(".")[0]) >= 2 and re.search("numpy|_ARRAY_API", error):
        return 'pip install "numpy<2"'
    return None


def wheels(facts: Facts) -> List[str]:
    """Returns the installed distributions of TensorFlow, as name==version."""
    return [
        f"{name}=={version}"
        for name, version in facts["packages"].items()
        if _TENSORFLOW_WHEELS.match(name)
    ]
