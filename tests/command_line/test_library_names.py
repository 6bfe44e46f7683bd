"""Tests of names of NumPy, SciPy and Python that newer versions lack, with `legacy-opt run`."""

import contextlib
import importlib.util
import inspect
import sys

import numpy as np
import pytest

from legacy_opt.compat.old_programs import old_names
from legacy_opt.compat.old_programs.old_names import libraries
from legacy_opt.compat.old_programs.script_runner import library_names
from tests.support.processes.command_line import start

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
WITH_PACKAGE = ("--package", "library")
HAS_SCIPY = importlib.util.find_spec("scipy") is not None
SCRIPT = """
import collections
import inspect

import numpy as np
from numpy import float as a_float, NaN
import tensorflow as tf

import library

def function(a, b=1, *c):
    pass

print(np.zeros(2, np.float).dtype, np.int(3.5), a_float(2), NaN, np.product([2, 3]), np.Inf)
print(np.asfarray([1, 2]), np.asfarray([1], np.float32).dtype, np.mat([1]).shape, np.NINF)
print(np.cast[np.float32]([1.5]).dtype, np.asscalar(np.ones(1)), np.alen(5))
print(np.lib.pad([1], 1, "constant"), np.in1d([[1, 2]], [2]), np.msort([[2], [1]]).tolist())
print(np.math.sqrt(4), np.string_(b"a"))
print(isinstance([], collections.Iterable), inspect.getargspec(function)[:3])
print([np.dtype(each).kind for each in (np.object, np.str, np.complex, np.bool)])  # line 20
np.load = 3
print(hasattr(np, "float"), hasattr(np, "nothing"), library.sees(), np.load)
"""
OUTPUT = """\
float64 3 2.0 nan 6 inf
[1. 2.] float32 (1, 1) -inf
float32 1.0 1
[0 1 0] [False  True] [[1], [2]]
2.0 b'a'
True (['a', 'b'], 'c', None)
['O', 'U', 'c', 'b']
True False {sees} 3
"""
OF_SCIPY = """
print(library.finds("scipy.sparse.linalg.eigen.arpack"))
from scipy.sparse.linalg.eigen.arpack import eigsh
from scipy.misc import comb
import scipy.misc
import scipy.sparse.linalg.eigen.arpack as arpack

assert arpack.eigsh is eigsh
print(callable(eigsh), comb(3, 2), scipy.misc.factorial(3))
print(bool(__import__("scipy.sparse.linalg.eigen.arpack")))
"""
LIBRARY = """
import numpy

def sees():
    return hasattr(numpy, "float")

def finds(name):
    try:
        return bool(__import__(name, fromlist=["eigsh"]))
    except ImportError:
        return False
"""


def is_module(name):
    with contextlib.suppress(ImportError):
        return importlib.import_module(name) is not None
    return False


def run(folder, script, *words, path=()):
    (folder / "script.py").write_text(script)
    process = start("run", *words, "script.py", path=path, cwd=str(folder))
    output, errors = process.communicate(timeout=300)
    return process.returncode, output, errors


@pytest.mark.parametrize("words", [pytest.param((), marks=pytest.mark.every_lane), WITH_PACKAGE])
def test_the_users_modules_have_the_names_again(words, tmp_path):
    # As `pip install --target` leaves it: beside a script there may be such a folder, too.
    installed = tmp_path / "installed"
    (installed / "library-1.0.dist-info").mkdir(parents=True)
    (installed / "library-1.0.dist-info" / "RECORD").write_text("library.py,sha256=abc,79\n")
    (installed / "library.py").write_text(LIBRARY)
    script, output = SCRIPT, OUTPUT
    if HAS_SCIPY:
        has_arpack = is_module("scipy.sparse.linalg.eigen.arpack")
        script = SCRIPT + OF_SCIPY
        output = f"{OUTPUT}{has_arpack or bool(words)}\nTrue 3.0 6.0\nTrue\n"
    code, printed, errors = run(tmp_path, script, *words, path=[installed])
    is_old = hasattr(np, "float")
    assert (code, printed) == (0, output.format(sees=is_old or bool(words))), errors
    if not is_old:
        assert errors.count("has no numpy.float; it gets float.") == 1
    has_returned = getattr(np, "bool", bool) is not bool
    warning = "warning: script.py:20: numpy.bool: In NumPy 2, this is numpy.bool_"
    assert (warning in errors) == has_returned
    assert "missing_names.py" not in errors  # NumPy's warning of `np.bool`, where it is looked up


def test_what_is_not_given_back_is_reported_before_the_run(tmp_path):
    script = "import numpy as np\nprint(1)\nnp.pmt(1, 2, 3)\n"
    code, output, errors = run(
        tmp_path, script + "from scipy.misc import imread\nimread\n" * HAS_SCIPY
    )
    if hasattr(np, "pmt"):  # some NumPys have a function that raises an error with the advice
        assert output == "1\n" * (not HAS_SCIPY)
    else:
        advice = "numpy.pmt: The package numpy_financial has it"
        assert code == 1 and output == "" and "script.py:3: " + advice in errors
        in_function = "from numpy import pmt, ones\nprint(ones(1))\ndef f(): pmt(1, 2, 3)\nf()\n"
        code, output, later = run(tmp_path, in_function)
        assert (code, output) == (1, "[1.]\n") and "AttributeError: script.py:1: " + advice in later
    if HAS_SCIPY:
        assert "script.py:4: scipy.misc.imread: SciPy has no functions for images" in errors


@pytest.mark.parametrize("name", sorted(old_names.LIBRARIES))
def test_a_new_name_is_the_old_object_where_both_exist(name):
    fate, (home, _, last) = old_names.LIBRARIES[name], name.rpartition(".")
    if home.partition(".")[0] == "scipy" or name in libraries.MODULES:
        return  # see above
    assert fate.now or fate.advice
    old = getattr(importlib.import_module(home), last, None)
    try:
        new = libraries.GIVEN_BACK.get(name) if fate.now is None else library_names._value(fate.now)
    except (AttributeError, ImportError):
        assert old is not None  # an old library, which lacks the new name
        return
    if old is None or fate.advice or name in libraries.GIVEN_BACK:
        assert (fate.now is None and name not in libraries.GIVEN_BACK) or new is not None
    elif callable(old) and old is not new and not isinstance(old, type):
        array = np.array([[1.0, 2.0], [0.0, 4.0]])
        np.testing.assert_array_equal(old(array), new(array))
    else:
        assert old is new or old == new or np.isnan(old)


def test_functions_that_are_given_back():
    given = libraries.GIVEN_BACK
    for name in ("asfarray", "alen", "msort"):
        if hasattr(np, name):
            for array in ([[3, 1], [2, 4]], np.float32([[2.0], [1.0]])):
                expected, actual = getattr(np, name)(array), given["numpy." + name](array)
                np.testing.assert_array_equal(actual, expected)
                assert np.asarray(actual).dtype == np.asarray(expected).dtype
    if hasattr(inspect, "getargspec"):
        expected = inspect.getargspec(lambda a, b=1, *c, **d: None)
        assert given["inspect.getargspec"](lambda a, b=1, *c, **d: None) == expected
    with pytest.raises(ValueError, match="use signature"):
        given["inspect.getargspec"](run)


def test_what_libraries_do_otherwise_today(tmp_path):
    code, _, errors = run(tmp_path, "import numpy as np\nfloat(np.ones((2, 1)))\n")
    assert code == 1 and "legacy-opt run: NumPy converts only arrays" in errors
    if sys.version_info >= (3, 10):  # with an older Python there is an older NumPy
        with pytest.raises(ValueError) as caught:
            np.array([[1], [1, 2]])
        assert "dtype=object" in library_names.way_out(caught.value)
