"""Tests for which missing names of TensorFlow `legacy-opt run` refuses to run a script.

If the command finds that every run of the script reaches a missing name, it does not start the
script. If the name is in code that a run might skip, such as a function or an `if`, the command
prints a warning and starts the script.
"""

import os
import types

import pytest
import tensorflow as tf

from legacy_opt import compat, versions
from legacy_opt.compat.cli import run_command
from legacy_opt.compat.old_programs.script_runner import runner
from tests.support.processes.command_line import Screen

pytestmark = pytest.mark.once

v1 = tf.compat.v1
GONE = "tf.get_embedding_variable"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Returns a function that writes files and calls `legacy-opt run` with the first file.

    The command is patched so that it checks the script, but does not run it. The function returns
    the command's exit code and its lines on stderr.
    """
    monkeypatch.syspath_prepend("replaced by the command")  # the command assigns sys.path[0]
    monkeypatch.setattr(runner, "prepare", lambda native: tf if versions.speaks_v1() else v1)
    monkeypatch.setattr(runner, "outcome", lambda start: 0)
    without_hooks = types.SimpleNamespace(install=lambda *_: None)
    monkeypatch.setattr(run_command, "missing_errors", without_hooks, raising=False)
    monkeypatch.chdir(tmp_path)

    def run(files):
        for name, code in files.items():
            with open(name, "w", encoding="utf-8") as file:
                file.write("import tensorflow as tf, sys, os, contextlib, typing\n" + code)
        with compat.patch_tensorflow():
            code, _, errors = Screen(capsys).run("run", list(files)[0])
        return code, errors.splitlines()

    return run


def message(line, path="script.py"):
    return f"{path}:{line}: {GONE}: Only DeepRec has EmbeddingVariables"


REFUSED = {
    "module level": "x = tf.get_embedding_variable",
    "call": "x = print(1, *[tf.get_embedding_variable('x')])",
    "import, and a use": "from tensorflow import get_embedding_variable as g\nx = g",
    "import, and a call": "from tensorflow import get_embedding_variable as g\ng(1)",
    "default argument": "def f(a, b=tf.get_embedding_variable): pass",
    "keyword default": "def f(*, a, b=tf.get_embedding_variable): pass",
    "default of a lambda": "f = lambda a=tf.get_embedding_variable: a",
    "decorator": "@tf.get_embedding_variable\ndef f(): pass",
    "decorator of a class": "@tf.get_embedding_variable\nclass A: pass",
    "base class": "class A(tf.get_embedding_variable): pass",
    "class body": "class A:\n  class B:\n    x = tf.get_embedding_variable",
    "default of a method": "class A:\n  def f(self, x=tf.get_embedding_variable): pass",
    "what a comprehension goes over": "x = [a for a in tf.get_embedding_variable]",
    "what a generator goes over": "x = (a for a in tf.get_embedding_variable)",
    "what a loop goes over": "for a in tf.get_embedding_variable: pass",
    "a condition": "if tf.get_embedding_variable: pass",
    "a condition of a loop": "while tf.get_embedding_variable: pass",
    "the first of and": "x = tf.get_embedding_variable and y",
    "both sides of a comparison": "x = 1 < tf.get_embedding_variable",
    "with": "with tf.Graph().as_default():\n  tf.get_embedding_variable",
    "what with takes": "with tf.get_embedding_variable: pass",
    "main guard": "if '__main__' == __name__:\n  tf.get_embedding_variable",
    "text": "x = f'{tf.get_embedding_variable}'",
    "after a function that exits": "def f():\n  sys.exit()\ntf.get_embedding_variable",
}
WARNED = {
    "function": "def f():\n  tf.get_embedding_variable",
    "function that is called": "def f():\n  tf.get_embedding_variable\nf()",
    "coroutine": "async def f():\n  async with f():\n    tf.get_embedding_variable",
    "method": "class A:\n  def f(self):\n    tf.get_embedding_variable",
    "import without a use": "from tensorflow import get_embedding_variable",
    "import, used in a function": "from tensorflow import get_embedding_variable as g\n"
    "def f(x=1):\n  return g(x)\nif sys.argv:\n  f(g)",
    "import, and another value": "if sys.argv:\n  from tensorflow import get_embedding_variable as"
    " g\nelse:\n  g = None\nx = g",
    "import in a try, and a use": "try:\n  from tensorflow import get_embedding_variable as g\n"
    "except ImportError:\n  raise\nclass A(g): pass",
    "import and exit": "try:\n  from tensorflow import get_embedding_variable\n"
    "except ImportError:\n  print('no TensorFlow')\n  sys.exit(1)",
    "except that raises": "try:\n  tf.get_embedding_variable\n"
    "except Exception as error:\n  raise ValueError from error",
    "import in a function": "def f():\n  from tensorflow import get_embedding_variable",
    "lambda": "f = lambda: tf.get_embedding_variable",
    "default in a function": "def g():\n  def f(a=tf.get_embedding_variable): pass",
    "if": "if sys.argv[1:]:\n  tf.get_embedding_variable",
    "else": "if sys.argv[1:]:\n  pass\nelse:\n  tf.get_embedding_variable",
    "elif": "if sys.argv:\n  pass\nelif tf.get_embedding_variable:\n  pass",
    "conditional expression": "x = tf.get_embedding_variable if sys.argv[1:] else 0",
    "the second of or": "x = sys.argv or tf.get_embedding_variable",
    "the third of a comparison": "x = 1 < len(sys.argv) < tf.get_embedding_variable",
    "loop": "for _ in sys.argv[1:]:\n  tf.get_embedding_variable",
    "while": "while sys.argv[1:]:\n  tf.get_embedding_variable",
    "else of a loop": "for _ in sys.argv:\n  pass\nelse:\n  tf.get_embedding_variable",
    "comprehension": "x = [tf.get_embedding_variable for _ in sys.argv[1:]]",
    "second loop of a comprehension": "x = {1: 2 for _ in '' for _ in tf.get_embedding_variable}",
    "try": "try:\n  tf.get_embedding_variable\nexcept ValueError:\n  pass",
    "except": "try:\n  open('x')\nexcept OSError:\n  tf.get_embedding_variable",
    "assert": "assert sys.argv, tf.get_embedding_variable",
    "after sys.exit": "sys.exit()\ntf.get_embedding_variable",
    "after exit, perhaps": "if sys.argv:\n  exit(1)\ntf.get_embedding_variable",
    "after os._exit": "os._exit(0)\ntf.get_embedding_variable",
    "after raise, perhaps": "if len(sys.argv) > 3:\n  raise KeyError\ntf.get_embedding_variable",
    "after tf.app.run": "def main(_): pass\ntf.app.run(main)\ntf.get_embedding_variable",
    "after exit in with": "with open('x'):\n  sys.exit()\ntf.get_embedding_variable",
    "annotation": "x: tf.get_embedding_variable = 1",
    "annotation of an argument": "def f(x: tf.get_embedding_variable): pass",
    "other guard": "if __name__ == 'module':\n  tf.get_embedding_variable",
}
NEITHER = {
    "broad except": "try:\n  from tensorflow import get_embedding_variable as g\n"
    "except Exception as error:\n  if sys.argv:\n    raise\ndef f():\n  g",
    "bare except": "try:\n  tf.get_embedding_variable\nexcept:\n  print('none')",
    "two excepts": "try:\n  from tensorflow import get_embedding_variable as g\n"
    "except ValueError:\n  raise\nexcept ImportError:\n  g = None\ng",
    "type checking": "if typing.TYPE_CHECKING:\n  from tensorflow import get_embedding_variable",
    "suppress": "with contextlib.suppress(AttributeError):\n  tf.get_embedding_variable",
}


def line_of(code):
    return 1 + next(n for n, each in enumerate(code.splitlines(), 1) if "get_emb" in each)


@pytest.mark.parametrize("where", REFUSED)
def test_names_that_every_run_reaches_stop_the_script(where, run):
    code, lines = run({"script.py": REFUSED[where]})
    assert code == 1 and len(lines) == 2
    assert lines[0].startswith(message(line_of(REFUSED[where]))) and "nothing was run" in lines[1]


@pytest.mark.parametrize("where", WARNED)
def test_names_that_a_run_may_not_reach_warn(where, run):
    code, (line,) = run({"script.py": WARNED[where]})
    assert code == 0
    assert line.startswith("legacy-opt run: warning: " + message(line_of(WARNED[where])))


@pytest.mark.parametrize("where", NEITHER)
def test_names_that_are_guarded_do_not_warn(where, run):
    assert run({"script.py": NEITHER[where]}) == (0, [])


@pytest.mark.parametrize(
    "script, helper, refused",
    [
        ("import helper", "tf.get_embedding_variable", True),
        ("import between", "tf.get_embedding_variable", True),
        ("if 0:\n  import helper\nimport between", "tf.get_embedding_variable", True),
        ("def f():\n  import helper", "tf.get_embedding_variable", False),
        ("try:\n  import between\nexcept ImportError:\n  pass", "tf.get_embedding_variable", False),
        ("sys.exit()\nimport helper", "tf.get_embedding_variable", False),
        ("import helper", "from tensorflow import get_embedding_variable", False),
        ("import helper as h\nh.g()", "from tensorflow import get_embedding_variable as g", True),
        ("from helper import g\ng()", "from tensorflow import get_embedding_variable as g", True),
        ("import helper", "if __name__ == '__main__':\n  tf.get_embedding_variable", False),
    ],
)
def test_modules_are_reached_by_their_imports(script, helper, refused, run):
    files = {"script.py": script, "helper.py": helper, "between.py": "from helper import *"}
    code, lines = run(files)
    place = message(line_of(helper), os.path.realpath("helper.py"))
    assert code == refused
    assert lines[0].startswith(("" if refused else "legacy-opt run: warning: ") + place)


def test_reached_and_unreached_names_in_one_script(run):
    code, lines = run({"script.py": "def f():\n  tf.get_embedding_variable\ntf.staged"})
    assert code == 1
    assert lines[0].startswith("legacy-opt run: warning: " + message(3))
    assert lines[1].startswith("script.py:4: tf.staged: Only DeepRec has it")
    assert "nothing was run" in lines[2] and len(lines) == 3


@pytest.mark.parametrize("name", ["new\nline", "\x1b[31mred", "\u202eright", "caf\xe9", "a\udcff"])
def test_hostile_names_of_files_stay_on_one_line(name, run):
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # the file system does not allow the name
        return
    code, lines = run({name + ".py": "def f():\n  tf.get_embedding_variable"})
    assert code == 0 and len(lines) == 1 and lines[0].isprintable()
    assert f".py:3: {GONE}: Only DeepRec has EmbeddingVariables" in lines[0]


def test_an_original_that_differs_from_run_to_run_is_named(run):
    code, lines = run({"script.py": "o = tf.contrib.opt.AdamWOptimizer(0.1)"})
    told = [
        line
        for line in lines
        if line.startswith("legacy-opt run: warning: script.py:2: In tf.contrib.opt nothing orders")
    ]
    assert code == 0 and lines == told and len(told) == versions.has_contrib()
