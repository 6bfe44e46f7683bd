"""`docs/maintaining.md` lists the private names of Keras that the code uses.

The names come from this lane's Keras, so names that a new Keras has removed are found, and new uses
in the code.
"""

import ast
import functools
import re

import pytest
import tensorflow as tf

from legacy_opt import versions
from tests.support.paths import ROOT
from tests.tools import layers

HEADING = "## Private names of Keras"
# The packages whose code handles objects of Keras.
HOMES = (
    "compat/in_keras",
    "compat/state/checkpoints",
    "legacy_opt/proofs",
    "legacy_opt/recorded/keras",
    "legacy_opt/versions",
)
PRIVATE_MODULE = re.compile(
    r"keras\.src\b|keras\.engine\b|\.?api\._|python\.keras\.|\.optimizer_v1$"
)
# Names of v1 optimizers, and of classes and functions of this package, that Keras has, too.
OURS = {"_checkpoint", "_momentum", "_path", "_prepare"}


@functools.lru_cache(maxsize=None)
def listed():
    """Returns the table as {name: generations of Keras}, such as {"_var_key": {2, 3}}."""
    page = (ROOT / "docs" / "maintaining.md").read_text(encoding="utf-8")
    section = page.partition(HEADING + "\n")[2].partition("\n## ")[0]
    rows = [line.split("|")[1:3] for line in section.splitlines() if line.startswith("| `")]
    return {
        name: set(map(int, re.findall(r"\d", generations)))
        for names, generations in rows
        for name in re.findall("`([^`]+)`", names)
    }


@functools.lru_cache(maxsize=None)
def used():
    """Returns the private names that the code in `HOMES` reads, defines or has as strings."""
    found = set()
    for path in layers.modules().values():
        if str(path.relative_to(ROOT)).startswith(HOMES):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                name = getattr(node, "attr", None) or _text_of(node)
                found.add(node.name if isinstance(node, ast.FunctionDef) else name)
    return {name for name in found if name and re.match("_(?!_)|__internal__$", name)}


def _text_of(node):
    text = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    text = node.s if type(node).__name__ == "Str" else text  # Python 3.7
    return text if isinstance(text, str) else None


def modules_named():
    """Returns the strings in the code that are the names of private modules, or parts of them."""
    found = set()
    for path in layers.modules().values():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in getattr(node, "names", []) if hasattr(alias, "name")]
            for text in [*names, getattr(node, "module", None), _text_of(node)]:
                if isinstance(text, str) and " " not in text and PRIVATE_MODULE.search(text):
                    found.add(text)
    return found


def names_of(objects):
    """Returns the private names of objects of Keras that are not TensorFlow's."""
    of_tensorflow = {*dir(tf.Module()), *dir(tf.train.Checkpoint()), *dir(tf.Variable(1.0))}
    found = {name for each in objects for name in dir(each)} - of_tensorflow
    return {name for name in found if re.match("_(?!_|self_)", name)}  # _self_: TensorFlow's


@functools.lru_cache(maxsize=None)
def of_keras_2():
    try:
        keras = versions.keras_2()
    except ImportError:
        return set()
    with tf.Graph().as_default():
        model = keras.Sequential([keras.layers.Dense(1, input_shape=(1,))])
        home = getattr(keras.optimizers, "legacy", keras.optimizers)
        optimizer = home.SGD(0.1, momentum=0.9)
        optimizer.apply_gradients([(variable, variable) for variable in model.weights])
        model.compile(optimizer, "mse")
        module = versions.keras._optimizer_v2_module()
        return names_of([optimizer, model, model.layers[0], module])


@functools.lru_cache(maxsize=None)
def of_keras_3():
    try:
        keras = versions.keras_3()
    except ImportError:
        return set()
    options = {"use_ema": True, "weight_decay": 0.1, "gradient_accumulation_steps": 2}
    optimizer = keras.optimizers.SGD(0.1, momentum=0.9, **options)
    variable = keras.Variable([1.0])
    optimizer.exclude_from_weight_decay([variable])
    optimizer.build([variable])
    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile(optimizer, "mse")
    return names_of([optimizer, variable, model, model.layers[0]])


def test_used_names_are_listed():
    missing = used() & (of_keras_2() | of_keras_3()) - set(listed()) - OURS
    assert not missing, (
        f"list them, with what would replace them, in docs/maintaining.md: {missing}"
    )


@pytest.mark.once
def test_modules_are_listed_and_the_list_has_no_other_names():
    assert modules_named() <= set(listed())
    assert set(listed()) - used() - modules_named() == set()


def test_the_names_of_keras_3_exist():
    """Fails first when a new Keras lacks a name: the list says what would replace it."""
    names = {name for name, generations in listed().items() if 3 in generations and name[0] == "_"}
    assert of_keras_3() == set() or names <= of_keras_3()
