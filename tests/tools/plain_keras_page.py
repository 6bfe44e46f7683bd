"""Writes the tables of docs/plain_keras.md, which describes translations to Keras' own optimizers.

python -m tests.tools.plain_keras_page           prints the measurements
python -m tests.tools.plain_keras_page PAGE.md   writes the page's tables

Both commands need Keras 2 and Keras 3.
"""

import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from legacy_opt import public
from legacy_opt.compat import to_plain_keras
from legacy_opt.compat.in_keras.plain_keras.counterparts import (
    COUNTERPARTS,
    KINDS,
    WITHOUT_COUNTERPART,
)
from tests.support.pages import table, with_part

v1 = tf.compat.v1
# Expressions that `translated` evaluates. The page shows the same expressions.
CASES = (
    "GradientDescentOptimizer(0.1)",
    "MomentumOptimizer(0.1, 0.9)",
    "MomentumOptimizer(0.1, 0.9, use_nesterov=True)",
    "AdamOptimizer(0.01)",
    "LazyAdamOptimizer(0.01)",
    "AdaMaxOptimizer(0.01)",
    "AdagradOptimizer(0.1)",
    "AdadeltaOptimizer(0.7)",
    "RMSPropOptimizer(0.01)",
    "RMSPropOptimizer(0.01, momentum=0.9)",
    "RMSPropOptimizer(0.01, centered=True)",
    "FtrlOptimizer(0.1)",
    "FtrlOptimizer(0.1, l1_regularization_strength=0.02, beta=0.5)",
)
APIS = {"optimizer_v2": "Keras 2", "keras3": "Keras 3"}


def translated(case, api):
    """Returns the `Translation` of the optimizer that an expression creates."""
    variables = [tf.Variable(np.ones(2, "f"))]
    return to_plain_keras(eval(case, {**vars(v1.train), **vars(public)}), api, variables=variables)


def figures(api):
    """Returns the table of the measurements with one Keras API."""
    rows = []
    for case in CASES:
        translation = translated(case, api)
        cells = [cell(figure) for figure in translation.report.measurements]
        rows.append([f"`{case}`", f"`{expression(translation.report)}`", *cells])
    return table(["v1", APIS[api], *KINDS], rows)


def expression(report):
    """Returns the expression that creates the Keras optimizer, without falsy arguments."""
    settings = {name: value for name, value in report.settings.items() if value}
    rate = settings.pop("learning_rate")
    arguments = [f"{rate:g}"] + ["{}={!r}".format(*item) for item in settings.items()]
    return f"{report.keras.split('.')[-1]}({', '.join(arguments)})"


def cell(figure):
    """Returns the largest difference between weights trained in v1 and in Keras, as text.

    If the difference is larger than rounding errors, the text also gives it in percent of the
    largest change of a weight in the training.
    """
    if figure.grade == "exact":
        return "0"
    if figure.grade == "rounding":
        return f"{figure.largest:.0e}"
    return f"{figure.largest:.2g} ({100 * figure.share:.0f} %)"


def state():
    """Returns the table of slots and non-slot variables, in v1 and in Keras."""
    rows = []
    for name, relative in sorted(COUNTERPARTS.items()):
        for slot, (keras_2, *keras_3) in relative.row.slots.items():
            names, formula = (slot, keras_2, *(keras_3 or [keras_2])), relative.formula(slot)
            text = formula.text % {"v1": slot, "keras": keras_2}
            formula = "the same" if formula.exact else f"`{text}`"
            rows.append([f"`{item}`" for item in (name, *names)] + [formula])
        for shared, argument in relative.powers.items():
            power = f"`{argument} ** (iterations + 1)`"
            rows.append([f"`{name}`", f"`{shared}`", "–", "–", power])
    return table(["v1", "slot or shared variable", "Keras 2", "Keras 3", ""], rows)


def settings():
    """Returns the table of the arguments of v1 optimizers and of their Keras counterparts."""
    rows = []
    for name, relative in sorted(COUNTERPARTS.items()):
        pairs = [
            f"`{keras}={source!r}`"
            if not isinstance(source, str)
            else (f"`{keras}`" if keras == source else f"`{source}` → `{keras}`")
            for keras, source in relative.row.arguments.items()
        ]
        rows.append([f"`{name}`", f"`{relative.row.name}`", ", ".join(pairs)])
    return table(["v1", "Keras", "arguments, besides `learning_rate`"], rows)


def none():
    """Returns the table of the v1 optimizers without a counterpart in Keras."""
    return table(
        ["v1", "why"], [[f"`{name}`", why] for name, why in sorted(WITHOUT_COUNTERPART.items())]
    )


def versions():
    """Returns the page's sentence with the measured versions."""
    import tf_keras

    facts = tf_keras.__version__, tf.keras.__version__, tf.__version__
    return "Measured with tf_keras {} and Keras {} on TensorFlow {}.\n".format(*facts)


# The parts in FACTS depend only on this package. The parts in MEASURED also depend on the installed
# versions of TensorFlow and Keras.
FACTS = {"settings": settings, "state": state, "none": none}
MEASURED = {
    "versions": versions,
    "keras 2": lambda: figures("optimizer_v2"),
    "keras 3": lambda: figures("keras3"),
}


def page(text):
    """Returns the page's text with new tables, measured with the installed TensorFlow."""
    for name, make in {**FACTS, **MEASURED}.items():
        text = with_part(text, name, make())
    return text


if __name__ == "__main__":
    if sys.argv[1:]:
        path = Path(sys.argv[1])
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        for api in APIS:
            print(figures(api))
