"""`legacy-opt doctor`: what is installed here, what is missing, and the pip line for it.

Nothing of TensorFlow is imported at the top: the doctor must speak where TensorFlow is missing or
broken.
"""

import importlib
import json
import os
import platform
import re
import sys

import legacy_opt

from .. import messages
from . import tables, terminal

try:
    from importlib import metadata
except ImportError:  # Python 3.7
    metadata = None

# The wheels that install a package named `tensorflow`.
_TENSORFLOW_WHEELS = re.compile(
    r"(intel-)?tensorflow(-cpu|-gpu|-intel|-macos|-rocm|-cpu-aws|-aarch64)?$|tf-nightly(-cpu|-gpu)?$"
)
_OTHER_PACKAGES = ("keras", "tf-keras", "tensorflow-estimator", "numpy", "protobuf", "h5py")
_USE_TENSORFLOW = "export KERAS_BACKEND=tensorflow"
_KERNEL = re.compile(r"(Resource)?(Sparse)?Apply(\w+)$")
_FORMS = ("ref dense", "ref sparse", "resource dense", "resource sparse")


def add_command(commands):
    """Adds `doctor` to the command line."""
    parser = commands.add_parser("doctor", help="tell what is installed and what is missing")
    parser.add_argument("--json", action="store_true", help="the same facts for machines")
    parser.set_defaults(run=run)


def run(arguments):
    """Prints the diagnosis; returns 1 if something stands in the way of legacy_opt, else 0."""
    facts = diagnose()
    if arguments.json:
        print(json.dumps(facts, indent=2))
    else:
        tables.show("\n".join(_lines(facts)).splitlines(), sys.stdout)
    return int(any(problem["level"] == "error" for problem in facts["problems"]))


def diagnose():
    """Examines this Python.

    Returns:
      A dict that `json` can write: `legacy_opt`, `python`, `packages` (name: version),
      `tensorflow`, `keras`, `to_keras` (what its `api` can be: "auto" and the name it stands for,
      "optimizer_v2" and "keras3" and what stands in their way, or None), `kernels` (name: the forms
      there are) and `problems`, a list of dicts of `level` ("error" or "warning"), `text` and `fix`
      (a command, or None).
    """
    facts = {
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
    with terminal.silence():
        facts["packages"] = _packages()
        facts["tensorflow"] = _tensorflow()
        usable = facts["tensorflow"]["error"] is None
        facts["keras"] = _keras() if usable else None
        facts["to_keras"] = _to_keras(facts["keras"]) if usable else None
        facts["kernels"] = _kernels() if usable else {}
    facts["problems"] = list(_problems(facts))
    return facts


def _packages():
    if metadata is None:
        import pkg_resources

        installed = [(found.project_name, found.version) for found in pkg_resources.working_set]
    else:
        installed = [(found.metadata["Name"], found.version) for found in metadata.distributions()]
    named = sorted((name.lower().replace("_", "-"), at) for name, at in installed if name)
    return {
        name: version
        for name, version in named
        if name in _OTHER_PACKAGES or _TENSORFLOW_WHEELS.match(name)
    }


def _tensorflow():
    try:
        from legacy_opt import versions
    except Exception as error:  # a broken installation may raise anything: that is the finding
        return {"version": None, "error": _describe(error)}
    facts = {"version": versions.tensorflow_version(), "error": None}
    facts.update(versions.tensorflow_modes())
    facts.update(estimator=versions.has_estimator(), contrib=versions.has_contrib())
    return facts


def _keras():
    from legacy_opt import versions

    try:
        facts = dict(versions.keras_facts(), error=None)
    except Exception as error:  # as above: Keras may be missing or broken
        facts = {"version": None, "error": _describe(error)}
    facts.update({name: os.environ.get(name) for name in ("TF_USE_LEGACY_KERAS", "KERAS_BACKEND")})
    return facts


def _to_keras(keras):
    from legacy_opt import versions

    facts = {"auto": {2: "optimizer_v2", 3: "keras3"}.get(keras.get("generation"))}
    for api, find in (("optimizer_v2", versions.optimizer_v2), ("keras3", versions.keras_3)):
        try:
            find()
            facts[api] = None
        except Exception as error:  # as above
            facts[api] = _describe(error)
    return facts


def _kernels():
    tf = importlib.import_module("tensorflow")
    kernels = {}
    for resource, sparse, name in filter(None, map(_kernel_parts, dir(tf.raw_ops))):
        form = "%s %s" % ("resource" if resource else "ref", "sparse" if sparse else "dense")
        kernels.setdefault(name, []).append(form)
    return {name: sorted(kernels[name]) for name in sorted(kernels)}


def _kernel_parts(op):
    match = _KERNEL.match(op)
    return match and match.groups()


def _describe(error):
    return "%s: %s" % (type(error).__name__, messages.text_of(error) or "no message")


def _problems(facts):
    wheels = _wheels(facts)
    error = facts["tensorflow"]["error"]
    if not wheels and facts["tensorflow"]["version"] is None:
        yield _problem(
            "error",
            "TensorFlow is not installed.",
            'pip install "legacy-opt[tensorflow-cpu]"  (GPUs: "legacy-opt[tensorflow]")',
        )
    elif error is not None:
        yield _problem("error", "TensorFlow cannot be imported: " + error, _fix_for(error, facts))
    elif not facts["kernels"]:
        yield _problem("error", "This TensorFlow has no fused update kernels in tf.raw_ops.", None)
    if len(wheels) > 1:
        names = [wheel.split("==")[0] for wheel in wheels]
        yield _problem(
            "warning",
            "%s are installed together and overwrite each other's files." % " and ".join(wheels),
            "pip uninstall -y %s && pip install %s" % (" ".join(names), wheels[-1]),
        )
    if facts["keras"]:
        yield from _keras_problems(facts)


def _keras_problems(facts):
    keras, packages, to_keras = facts["keras"], facts["packages"], facts["to_keras"]
    has_keras2 = "tf-keras" in packages
    if keras["error"] is not None:
        text = "tf.keras cannot be imported: " + keras["error"]
        fix = None
        if keras["TF_USE_LEGACY_KERAS"] not in (None, "", "0"):
            fix = None if has_keras2 else _pip_tf_keras(facts)
        elif keras["KERAS_BACKEND"] not in (None, "", "tensorflow"):  # which may be missing
            fix = _USE_TENSORFLOW
        yield _problem("warning", text, fix)
        return
    minor = _minor(facts)
    if has_keras2 and not packages["tf-keras"].startswith(minor + "."):
        text = "tf-keras %s is not for TensorFlow %s." % (packages["tf-keras"], minor)
        yield _problem("warning", text, _pip_tf_keras(facts))
    if keras["backend"] != "tensorflow":
        text = "Keras runs on %s; v1 optimizers need its TensorFlow backend." % keras["backend"]
        yield _problem("warning", text, _USE_TENSORFLOW)
    elif to_keras[to_keras["auto"]] is not None:
        text = "to_keras makes no optimizers for tf.keras: " + to_keras[to_keras["auto"]]
        fix = "pip install -U keras" if to_keras["auto"] == "keras3" else None
        yield _problem("warning", text, fix)


def _pip_tf_keras(facts):
    # tf-keras asks for the wheel named tensorflow, which would land on top of tensorflow-cpu.
    no_deps = "" if "tensorflow" in facts["packages"] else "--no-deps "
    return 'pip install %s"tf-keras~=%s.0"' % (no_deps, _minor(facts))


def _minor(facts):
    return ".".join(facts["tensorflow"]["version"].split(".")[:2])


def _problem(level, text, fix):
    return {"level": level, "text": text, "fix": fix}


def _fix_for(error, facts):
    """Returns the pip line for the two clashes that old TensorFlow wheels are known for."""
    numpy = facts["packages"].get("numpy", "0")
    if "Descriptors cannot" in error or "protobuf" in error:
        return 'pip install "protobuf<3.21"'
    if int(numpy.split(".")[0]) >= 2 and re.search("numpy|_ARRAY_API", error):
        return 'pip install "numpy<2"'
    return None


def _wheels(facts):
    return [
        "%s==%s" % (name, version)
        for name, version in facts["packages"].items()
        if _TENSORFLOW_WHEELS.match(name)
    ]


def _lines(facts):
    """Yields the diagnosis as text."""
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
            ("tf.estimator", _yes_no(facts["tensorflow"]["estimator"])),
            ("tf.contrib", _yes_no(facts["tensorflow"]["contrib"])),
            ("tf.keras", _keras_text(facts["keras"])),
            ("tf-keras", packages.get("tf-keras", "not installed")),
        ]
        rows += [("to_keras", text) for text in _to_keras_texts(facts)]
    rows += [(name, packages.get(name, "not installed")) for name in ("numpy", "protobuf")]
    rows += [("kernels", text) for text in _kernel_texts(facts["kernels"])]
    previous = None
    for label, text in rows:
        yield ("%-14s%s" % ("" if label == previous else label, text)).rstrip()
        previous = label
    yield ""
    for problem in facts["problems"]:
        yield "%s: %s" % (problem["level"].upper(), problem["text"])
        if problem["fix"]:
            yield "  fix: " + problem["fix"]
    if not facts["problems"]:
        yield "All is well."


def _tensorflow_text(facts):
    version = facts["tensorflow"]["version"] or "cannot be used"
    return "%s  (%s)" % (version, ", ".join(_wheels(facts)) or "no wheel installed")


def _modes_text(facts):
    names = ("eager", "control_flow_v2", "resource_variables")
    words = ["%s %s" % (name.replace("_", " "), "on" if facts[name] else "off") for name in names]
    count = sum(facts[name] for name in names)
    behaviour = {0: "v1 behaviour", 3: "v2 behaviour"}.get(count, "mixed behaviour")
    return "%s: %s" % (behaviour, ", ".join(words))


def _keras_text(facts):
    asked = "; TF_USE_LEGACY_KERAS=%s" % facts["TF_USE_LEGACY_KERAS"]
    asked = asked if facts["TF_USE_LEGACY_KERAS"] is not None else ""
    if facts["error"] is not None:
        return "cannot be imported" + asked
    home = {"tensorflow": "built into TensorFlow", "tf_keras": "from tf-keras"}
    where = home.get(facts["home"], "from the package keras")
    return "Keras {generation}: {version}, ".format(**facts) + where + asked


def _to_keras_texts(facts):
    """Yields one line for each `api` that there is, and how to come by Keras 2."""
    told = facts["to_keras"]
    for api in ("optimizer_v2", "keras3"):
        if told[api] is None:
            yield "api=%r%s" % (api, ", the default" if api == told["auto"] else "")
    if told["auto"] == "keras3" and "tf-keras" not in facts["packages"]:
        yield "api='optimizer_v2' after " + _pip_tf_keras(facts)


def _kernel_texts(kernels):
    """Yields one line for each set of forms; most kernels have all four."""
    by_forms = {}
    for name, forms in kernels.items():
        by_forms.setdefault(tuple(forms), []).append(name)
    for forms in sorted(by_forms, key=len, reverse=True):
        heading = "all forms" if forms == _FORMS else ", ".join(forms)
        yield "%s: %s" % (heading, ", ".join(by_forms[forms]))


def _yes_no(there):
    return "yes" if there else "no"
