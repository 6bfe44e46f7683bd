"""Writes the tables of optimizers' pages in docs/: arguments, slots, differences from Keras.

python -m tests.tools.catalogue_pages          prints the differences from Keras' own optimizers
python -m tests.tools.catalogue_pages docs     writes all tables

Both commands need Keras 2 and Keras 3.
"""

import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from tests.support import running
from tests.support.keras import keras_ways
from tests.support.keras.keras_differences import PROBLEMS, SHAPE, STEPS, difference
from tests.support.pages import table, with_part
from tests.support.problems import Problem

v1 = tf.compat.v1
# The names that the v1 expressions below may use. The pages show these expressions.
NAMES = {**vars(v1.train), **{name: getattr(legacy_opt, name) for name in legacy_opt.__all__}}


class Replacement(NamedTuple):
    """An optimizer of this package, and its nearest counterparts among Keras' own optimizers.

    Attributes:
      v1: the expression that creates the optimizer of this package; it may use the global step as
        `step`.
      keras_2: the expression that creates the Keras 2 optimizer with names of
        `tf_keras.optimizers`; None if there is no counterpart.
      keras_3: the expression that creates the Keras 3 optimizer with names of `keras.optimizers`;
        None if there is no counterpart.
    """

    v1: str
    keras_2: Optional[str]
    keras_3: Optional[str]

    def make_v1(self, step):
        return eval(self.v1, {**NAMES, "step": step})

    def make_keras(self, generation):
        keras = versions.keras_2() if generation == 2 else versions.keras_3()
        return eval(self.expression(generation), dict(vars(keras.optimizers)))

    def expression(self, generation):
        """Returns the expression for Keras 2 or 3."""
        return self.keras_2 if generation == 2 else self.keras_3

    def generations(self):
        """Returns a list of the Keras generations (2, 3) that have a counterpart."""
        return [generation for generation in (2, 3) if self.expression(generation)]


class Page(NamedTuple):
    """The optimizers on a page.

    Attributes:
      classes: a tuple of expressions that create optimizers. A class whose slots depend on its
        arguments has several expressions.
      replacements: a tuple of `Replacement`.
    """

    classes: tuple
    replacements: tuple


def _same(expression, keras):
    return Replacement(expression, "legacy." + keras, keras)


PAGES: Any = {
    "adam_family.md": Page(
        (
            "LazyAdamOptimizer()",
            "AdamGSOptimizer(step)",
            "LazyAdamGSOptimizer(step)",
            "NadamOptimizer()",
            "AdaMaxOptimizer()",
            "AdamAsyncOptimizer()",
            "DiffGradOptimizer()",
            "RectifiedAdamOptimizer()",
            "RectifiedAdamOptimizer(amsgrad=True)",
            "AdaBeliefOptimizer()",
            "AdaBeliefOptimizer(amsgrad=True)",
            "NovoGradOptimizer()",
            "NovoGradOptimizer(amsgrad=True)",
            "YogiOptimizer()",
            "YogiOptimizer(beta1=0.0)",
        ),
        (
            _same("LazyAdamOptimizer(0.05)", "Adam(0.05, epsilon=1e-8)"),
            _same("AdamGSOptimizer(step, 0.05)", "Adam(0.05, epsilon=1e-8)"),
            _same("NadamOptimizer(0.05)", "Nadam(0.05, epsilon=1e-8)"),
            _same("AdaMaxOptimizer(0.05)", "Adamax(0.05, epsilon=1e-8)"),
            _same("AdamAsyncOptimizer(0.05)", "Adam(0.05, epsilon=1e-8)"),
            _same("DiffGradOptimizer(0.05)", "Adam(0.05, epsilon=1e-8)"),
            _same("RectifiedAdamOptimizer(0.05)", "Adam(0.05, epsilon=1e-7)"),
            _same("AdaBeliefOptimizer(0.05)", "Adam(0.05, epsilon=1e-7)"),
            _same("NovoGradOptimizer(0.05)", "Adam(0.05, epsilon=1e-7)"),
            _same("YogiOptimizer(0.05)", "Adam(0.05, epsilon=1e-3)"),
        ),
    ),
    "weight_decay.md": Page(
        (
            "AdamWOptimizer(0.01)",
            "MomentumWOptimizer(0.01, 0.1, 0.9)",
            "AdamWeightDecayOptimizer(0.01)",
        ),
        (
            Replacement(
                "AdamWOptimizer(0.01, 0.05)",
                "AdamW(0.05, weight_decay=0.01, epsilon=1e-8)",
                "AdamW(0.05, weight_decay=0.01, epsilon=1e-8)",
            ),
            Replacement(
                "AdamWOptimizer(0.01, 0.05)",
                "AdamW(0.05, weight_decay=0.01 / 0.05, epsilon=1e-8)",
                "AdamW(0.05, weight_decay=0.01 / 0.05, epsilon=1e-8)",
            ),
            Replacement(
                "MomentumWOptimizer(0.01, 0.1, 0.9)",
                "SGD(0.1, 0.9, weight_decay=0.01 / 0.1)",
                "SGD(0.1, 0.9, weight_decay=0.01 / 0.1)",
            ),
            Replacement(
                "AdamWeightDecayOptimizer(0.05, weight_decay_rate=0.01)",
                "AdamW(0.05, weight_decay=0.01, epsilon=1e-6)",
                "AdamW(0.05, weight_decay=0.01, epsilon=1e-6)",
            ),
        ),
    ),
    "layerwise.md": Page(
        ("LARSOptimizer(0.1)", "LAMBOptimizer(0.01)", "ConditionalGradientOptimizer(0.9)"),
        (
            Replacement("LAMBOptimizer(0.05)", None, "Lamb(0.05, epsilon=1e-6)"),
            Replacement(
                "LAMBOptimizer(0.05, weight_decay_rate=0.01)",
                None,
                "Lamb(0.05, epsilon=1e-6, weight_decay=0.01)",
            ),
        ),
    ),
    "signs.md": Page(
        ("AddSignOptimizer()", "PowerSignOptimizer()", "LionOptimizer()"),
        (
            Replacement("LionOptimizer(0.05)", "Lion(0.05)", "Lion(0.05)"),
            Replacement(
                "LionOptimizer(0.05, weight_decay=0.1)",
                "Lion(0.05, weight_decay=0.1)",
                "Lion(0.05, weight_decay=0.1)",
            ),
        ),
    ),
    "adagrad_decay.md": Page(
        ("AdagradDecayOptimizer(0.1, step)", "AdagradDecayOptimizerV2(0.1, step)"), ()
    ),
    "second_moments.md": Page(
        (
            "AdafactorOptimizer()",
            "AdafactorOptimizer(beta1=0.9)",
            "AdafactorOptimizer(factored=False)",
            "RegAdagradOptimizer(0.1)",
            "ShampooOptimizer(step)",
            "ShampooOptimizer(step, svd_interval=20)",
            "ShampooOptimizer(step, max_matrix_size=5)",
            "COCOBOptimizer()",
        ),
        (
            Replacement("AdafactorOptimizer()", "Adafactor(0.01)", "Adafactor(0.01)"),
            Replacement(
                "AdafactorOptimizer(learning_rate=0.05)", "Adafactor(0.05)", "Adafactor(0.05)"
            ),
            _same("RegAdagradOptimizer(0.1)", "Adagrad(0.1, epsilon=0.0)"),
        ),
    ),
}


# The slots.


class Facts(NamedTuple):
    """The variables that an optimizer creates.

    Attributes:
      slots: a dict from each trained variable's name to another dict, which maps slot names such as
        "m" to (name in a checkpoint, shape, dtype).
      shared: the names of the non-slot variables.
    """

    slots: dict
    shared: list


def facts(expression, shapes):
    """Returns the `Facts` of an optimizer; `shapes` is a dict from variables' names to shapes."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        variables = {name: v1.get_variable(name, shape) for name, shape in shapes.items()}
        optimizer = eval(expression, {**NAMES, "step": step})
        loss = tf.add_n([tf.reduce_sum(variable) for variable in variables.values()])
        optimizer.minimize(loss, step)
        slots = {name: {} for name in variables}
        for slot in optimizer.get_slot_names():
            for name, variable in variables.items():
                found = optimizer.get_slot(variable, slot)
                if found is not None:
                    kept = found.op.name, tuple(found.shape.as_list()), found.dtype.base_dtype
                    slots[name][slot] = kept
        others = {name for each in slots.values() for name, _, _ in each.values()}
        others.update(variables, [step.op.name])
        names = [each.op.name for each in v1.global_variables()]
        return Facts(slots, [name for name in names if name not in others])


def arguments(page):
    """Returns the table of the constructors' arguments."""
    classes = dict.fromkeys(expression.split("(")[0] for expression in page.classes)
    return table(
        ["class", "arguments"], [[f"`{name}`", f"`{signature(name)}`"] for name in classes]
    )


def signature(name):
    """Returns a constructor's arguments and defaults as text."""
    parameters = list(inspect.signature(getattr(legacy_opt, name).__init__).parameters.values())
    return ", ".join(
        each.name if each.default is each.empty else f"{each.name}={each.default!r}"
        for each in parameters[1:]
    )


def slots(page):
    """Returns the table of slots and non-slot variables, with their names in a checkpoint."""
    rows = []
    for expression in page.classes:
        found = facts(expression, {"w": SHAPE})
        kept = sorted(found.slots["w"].items(), key=lambda item: by_number(item[1][0]))
        cells = [
            f"`{name}` {slot if shape == SHAPE else f'{slot} {list(shape)!r}'}"
            for slot, (name, shape, _) in kept
        ]
        shared = ", ".join(f"`{name}`" for name in found.shared) or "–"
        rows.append([f"`{expression}`", "<br>".join(cells) or "–", shared])
    head = [f"for a variable `w` {list(SHAPE)!r}", "its slots", "shared by all"]
    return table(head, rows)


def state(page):
    """Returns the table of the slots' sizes in KB or MB, for the optimizers of all pages."""
    del page
    rows = {}
    for each in PAGES.values():
        for expression in each.classes:
            size = slot_bytes(expression, (1000, 1000))
            rows.setdefault(_size(size), [size]).append(f"`{expression}`")
    ordered = sorted(rows.items(), key=lambda row: row[1][0])
    cells = [[size, ", ".join(names)] for size, (_, *names) in ordered]
    for expression in "ShampooOptimizer(step)", "ShampooOptimizer(step, svd_interval=20)":
        size = slot_bytes(expression, (700, 700))
        text = f"`{expression}` of 700 by 700, **{size / 4 / 700**2:.3g} times** the variable"
        cells.append([_size(size), text])
    return table(["state", "of"], cells)


def slot_bytes(expression, shape):
    """Returns the size of an optimizer's slots of a float32 variable in bytes."""
    slots = facts(expression, {"w": shape}).slots["w"].values()
    return sum(int(np.prod(shape, dtype=int)) * dtype.size for _, shape, dtype in slots)


def _size(count):
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} KB"


def by_number(name):
    """Returns a key that sorts `w/Name`, `w/Name_2` and `w/Name_10` in this order."""
    return len(name), name


# The measurements.


def problem():
    """Returns a problem with one variable for each kind of gradient in `PROBLEMS`."""
    parts = {name: make() for name, make in PROBLEMS.items()}
    names = {name: name.replace(" ", "_") for name in parts}
    return Problem(
        {names[name]: part.values["table"] for name, part in parts.items()},
        [
            {names[name]: part.gradients[number]["table"] for name, part in parts.items()}
            for number in range(STEPS)
        ],
        tuple(names[name] for name, part in parts.items() if part.sparse),
        "float32",
    )


def keras_run(one_problem, optimizer, generation):
    """Trains with a Keras optimizer in a `tf.function`; returns the variables' final values."""
    # Keras 3's Adafactor trains only keras.Variables.
    make = tf.Variable if generation == 2 else keras_ways.keras_variable
    variables = {
        name: make(value, name=name, dtype=value.dtype)
        for name, value in one_problem.values.items()
    }

    @tf.function(input_signature=[running.signature(one_problem)], autograph=False)
    def train(tensors):
        optimizer.apply_gradients(
            [
                (_gradient(tensors[name], value.shape), variables[name])
                for name, value in one_problem.values.items()
            ]
        )

    for step in one_problem.gradients:
        train(tf.nest.map_structure(tf.constant, running._plain(step)))
    return {name: variable.numpy() for name, variable in variables.items()}


def _gradient(tensors, shape):
    """Returns a gradient.

    The dense shape of a sparse gradient is a tensor, as in the gradient of an embedding layer.
    """
    if not isinstance(tensors, tuple):
        return tensors
    return tf.IndexedSlices(*tensors, tf.constant(shape, tf.int64))


def measure(replacement, generation):
    """Returns a dict from each kind of gradient to its `Difference`."""
    one_problem = problem()
    expected = running.session(one_problem, replacement.make_v1, use_resource=True).steps[-1]
    actual = keras_run(one_problem, replacement.make_keras(generation), generation)
    start = one_problem.values
    return {
        kind: difference([actual[name]], [start[name], expected[name]])
        for kind, name in zip(PROBLEMS, start)
    }


def replacements(page):
    """Returns the table of the differences from Keras' own optimizers."""
    rows = []
    for replacement in page.replacements:
        for generation in replacement.generations():
            expression = f"{generation}: `{replacement.expression(generation)}`"
            found = measure(replacement, generation)
            rows.append([f"`{replacement.v1}`", expression, *map(str, found.values())])
    return table(["v1", "Keras", *PROBLEMS], rows)


def measured_versions():
    """Returns the page's sentence with the measured versions."""
    names = versions.keras_2().__version__, versions.keras_3().__version__, tf.__version__
    return "Measured with tf_keras {} (Keras 2) and Keras {} on TensorFlow {}.\n".format(*names)


FACTS = {"arguments": arguments, "slots": slots, "state": state}
MEASURED = {"versions": lambda page: measured_versions(), "replacements": replacements}


def written(text, page, makers):
    """Returns a page's text with new contents for the tables that are named in `makers`."""
    for name, make in makers.items():
        if f"<!-- {name} -->" in text:
            text = with_part(text, name, make(page))
    return text


if __name__ == "__main__":
    for name, page in PAGES.items():
        if sys.argv[1:]:
            path = Path(sys.argv[1]) / name
            text = written(path.read_text(encoding="utf-8"), page, {**FACTS, **MEASURED})
            path.write_text(text, encoding="utf-8")
        else:
            print(replacements(page))
