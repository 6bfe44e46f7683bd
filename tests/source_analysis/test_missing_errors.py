"""Tests the errors that `legacy-opt run` raises if a script uses a name that TensorFlow lacks.

Each error message says what to use instead, or why the name is missing.
"""

import re
import textwrap

import pytest

from legacy_opt import versions
from tests.support.processes.command_line import ROOT, start

SCRIPTS = ROOT / "tests" / "scripts"
ZOO, EASYREC = SCRIPTS / "deeprec_style_zoo.py", SCRIPTS / "easyrec_style.py"
# Keys: code that uses a missing name. Values: the beginning of the error message.
ODD = {
    "tf.get_embedding_variable": "tf.get_embedding_variable: Only DeepRec has EmbeddingVariables",
    "getattr(tf, 'x', 1); hasattr(tf, 'staged') or tf.zeros; tf.staged": "tf.staged: Only DeepRec",
    "tf.contrib.no_such_thing.at_all": "tf.contrib.no_such_thing.at_all: TensorFlow 2 has no",
    "tf.layers.no_such_layer": "tf.layers.no_such_layer: TensorFlow 1.15 has no such",
    "tf.keras.no_such_thing": "tf.keras.no_such_thing: This TensorFlow has no such name",
    "from tensorflow.contrib import no_such": "tf.contrib.no_such: TensorFlow 2 has no tf.contrib",
    "import tensorflow.no_such.thing as x": "tf.no_such.thing: This TensorFlow has no such name",
    "from tensorflow.no_such import x": "tf.no_such.x: This TensorFlow has no such name",
    "from tensorflow.train import NoSuch": "tf.train.NoSuch: This TensorFlow has no such name",
    "import tensorflow.compat.v1 as o; o.train.NoOne": "tf.train.NoOne: This TensorFlow has no",
    "(tf.\n train\n .NoWay)": "tf.train.NoWay: This TensorFlow has no such name",
}
# Imports at the beginning of a module, and expressions that use the imported names. The values are
# lines of the imports, and the missing names.
IMPORTS = """import tensorflow as tf
import tensorflow.contrib.no_such.thing as thing
import tensorflow.contrib.no_such.other
from tensorflow.contrib.nothing import a, b as c
from tensorflow.train import AdamOptimizer, NoSuch
import tensorflow.python.ops.no_such as private
import copy
try:
    from tensorflow.contrib.nothing import d
except ImportError as error:
    raise RuntimeError("no d") from error
try:
    from tensorflow.contrib.nothing import a as e
except Exception:
    e = None
assert e is None and not hasattr(a, "x") and AdamOptimizer is tf.train.AdamOptimizer
"""
PUT_OFF = {
    "thing.x": (2, "tf.contrib.no_such.thing"),
    "a()": (4, "tf.contrib.nothing.a"),
    "[a == 1]": (4, "tf.contrib.nothing.a"),
    "isinstance(1, c)": (4, "tf.contrib.nothing.b"),
    "exec('class C(c): pass')": (4, "tf.contrib.nothing.b"),
    "NoSuch(1)": (5, "tf.train.NoSuch"),
    "private.x": (6, "tf.python.ops.no_such"),
    "copy.deepcopy(private)": (6, "tf.python.ops.no_such"),
    "d.x": (9, "tf.contrib.nothing.d"),
}
DRIVER = """
import json, sys
import deeprec_style_zoo as zoo, easyrec_style as easyrec
import odd, installed, late

def attempt(name, function):
    try:
        function()
    except Exception as error:
        print("%s|%s|%s" % (name, type(error).__name__, " ".join(str(error).split())))

for switches in json.loads(sys.argv[1]):
    def train():
        sys.argv[1:] = ["--steps=3"] + switches
        with zoo.tf.Graph().as_default():
            zoo.main()
    attempt("zoo " + " ".join(switches), train)
for config in {"optimizer": "weighted_momentum_optimizer"}, {"embedding": "ev"}, {"export": "x"}:
    attempt("easyrec " + list(config)[0], lambda: easyrec.main(["", json.dumps(config)]))
for name in dir(odd):
    if name.startswith("use"):
        attempt(name, getattr(odd, name))
attempt("installed", installed.use)
for use in late.USES:
    attempt(use, lambda: exec(use, vars(late)))
zoo.embedding_variable("x", 1, sys.modules["argparse"].Namespace(ev=True, ev_filter=False))
"""
SWITCHES = [[], ["--ev"], ["--ev", "--ev_filter"], ["--multihash"], ["--smartstaged"]]
SWITCHES += [["--work_queue"], ["--group_embedding"]]


@pytest.fixture
def driver(tmp_path):
    """Writes a script that uses missing names and prints the errors; returns the script's path."""
    for script in ZOO, EASYREC:
        (tmp_path / script.name).write_text(script.read_text())
    uses = "import tensorflow as tf\n"
    for number, use in enumerate(ODD):
        uses += f"def use{number:02d}():\n{textwrap.indent(use, '    ')}\n"
    (tmp_path / "odd.py").write_text(uses)
    (tmp_path / "late.py").write_text(f"{IMPORTS}USES = {list(PUT_OFF)}\n")
    package = tmp_path / "site-packages"
    package.mkdir()
    use = "import tensorflow.compat.v1 as tf\ndef use():\n    tf.get_embedding_variable\n"
    (package / "installed.py").write_text(use)
    path = tmp_path / "driver.py"
    path.write_text(f"import sys\nsys.path.append({str(package)!r})\n{DRIVER}")
    return path


@pytest.mark.parametrize(
    "keras", ["legacy"] + ["keras3"] * (versions.keras_facts()["generation"] == 3)
)
def test_using_a_missing_name_raises_the_error_that_was_warned_of(keras, driver, monkeypatch):
    monkeypatch.delenv("TF_USE_LEGACY_KERAS", raising=False)
    if keras == "keras3":
        monkeypatch.setenv("TF_USE_LEGACY_KERAS", "0")
    process = start("run", driver, str(SWITCHES).replace("'", '"'))
    output, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    attempts = dict(re.findall(r"^([^|\n]+)\|(.*)$", output, re.M))
    assert "trained 3 steps" in output and "zoo " not in attempts, output + errors

    def place(name, line):
        return rf"(/\S+/)?{re.escape(name)}\.py:{line}: "

    zoo = {
        "--ev": (29, "tf.EmbeddingVariableOption: Only DeepRec has EmbeddingVariables"),
        "--ev --ev_filter": (29, "tf.EmbeddingVariableOption: Only DeepRec has"),
        "--multihash": (34, "tf.get_multihash_variable: Only DeepRec has"),
        "--smartstaged": (54, "tf.staged: Only DeepRec has it"),
        "--work_queue": (87, "tf.python.ops.work_queue.WorkQueue: This TensorFlow has no such"),
        "--group_embedding": (70, "tf.nn.group_embedding_lookup: This TensorFlow has no such"),
    }
    for switches, (line, text) in zoo.items():
        kind = "ModuleNotFoundError" if "queue" in switches else "AttributeError"
        found = attempts["zoo " + switches]
        assert re.match(kind + r"\|" + place("deeprec_style_zoo", line) + text, found), found
    for key, line, text in (
        ("optimizer", 31, "tf.train.WeightedMomentumOptimizer: This TensorFlow has no"),
        ("embedding", 40, "tf.GlobalStepEvict: Only DeepRec has"),
        ("export", 51, "tf.saved_model.OptionsOfPAI: This TensorFlow has no"),
    ):
        found = attempts["easyrec " + key]
        assert re.match(r"AttributeError\|" + place("easyrec_style", line) + text, found), found
    for number, (use, text) in enumerate(ODD.items()):
        found = attempts[f"use{number:02d}"]
        expected = place("odd", odd_line(number)) + re.escape(text)
        kind = "AttributeError"
        if use.startswith(("import tensorflow.no", "from")):
            kind = "(ModuleNotFound|Import)Error"
        assert re.match(kind + r"\|" + expected, found), (use, found)
    for use, (line, name) in PUT_OFF.items():
        expected = r"AttributeError\|" + place("late", line) + re.escape(name) + ": "
        assert re.match(expected, attempts[use]), (use, attempts[use])
    # If an installed package uses a missing name, the error has Python's own message.
    assert re.match(r"AttributeError\|module '[\w.]+' has no attribute", attempts["installed"])
    # The script does not catch its last error. The message was also printed as a warning before.
    assert re.search(r"\nAttributeError: {}".format(place("deeprec_style_zoo", 29)), errors), errors
    assert "missing_errors" not in errors
    warnings = re.findall(r"^legacy-opt run: warning: (.*)$", errors, re.M)
    uncaught = errors.rstrip().splitlines()[-1].partition(": ")[2]
    assert uncaught in warnings and len(warnings) >= len(ODD) + 10


def test_a_use_that_was_not_foreseen_is_named_by_its_own_line(tmp_path):
    """The warning is about line 3. The error is about another name in another line."""
    code = """
    import tensorflow as tf
    def f(): return tf.no_such.thing
    name = "no_" + "such"
    getattr(tf, name)
    """
    (tmp_path / "w.py").write_text(textwrap.dedent(code))
    _, errors = start("run", tmp_path / "w.py").communicate(timeout=300)
    warning, error = re.findall(r"w\.py:(\d+: [\w.]+): ", errors)
    assert (warning, error) == ("3: tf.no_such.thing", "5: tf.no_such")


def odd_line(number):
    """Returns the line of odd.py at which the use with this number begins."""
    return 3 + sum(2 + use.count("\n") for use in list(ODD)[:number])
