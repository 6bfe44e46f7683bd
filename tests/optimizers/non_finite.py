"""Measures how NaN and infinite gradients spread; writes the tables of docs/running.md.

python -m tests.optimizers.non_finite        prints the tables
python -m tests.optimizers.non_finite docs   writes them into the page
"""

import re
import sys
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.support.cases import CASES, one_of_each_class
from tests.support.paths import DOCS

v1 = tf.compat.v1
PAGE = DOCS / "running.md"
VALUES = {"NaN": float("nan"), "Inf": float("inf")}
KINDS = ("dense", "sparse")
SHAPE = (4, 3)
ROW, COLUMN = 1, 0
IDS = [1, 3]
HEALTHY_STEPS = 3
RATE = 0.5


def sgd():
    return v1.train.GradientDescentOptimizer(RATE)


# Each wrapper contains gradient descent, because gradient descent changes only one element of a
# variable to NaN if one element of the gradient is NaN.
WRAPPERS = {
    "ClipByValueOptimizer": lambda: legacy_opt.ClipByValueOptimizer(sgd(), -1.0, 1.0),
    "ClipByNormOptimizer": lambda: legacy_opt.ClipByNormOptimizer(sgd(), 1.0),
    "ClipByGlobalNormOptimizer": lambda: legacy_opt.ClipByGlobalNormOptimizer(sgd(), 1.0),
    "clip_gradients_by_norm": lambda: legacy_opt.clip_gradients_by_norm(sgd(), 1.0),
    "GradientAccumulationOptimizer": lambda: legacy_opt.GradientAccumulationOptimizer(sgd(), 2),
    "LossScaleOptimizer": lambda: legacy_opt.LossScaleOptimizer(
        sgd(), legacy_opt.FixedLossScaleManager(64.0)
    ),
    "LookaheadOptimizer": lambda: legacy_opt.LookaheadOptimizer(sgd(), 1),
    "MovingAverageOptimizer": lambda: legacy_opt.MovingAverageOptimizer(sgd()),
    "SWAOptimizer": lambda: legacy_opt.SWAOptimizer(sgd(), average_period=1),
    "MultiOptimizer": lambda: legacy_opt.MultiOptimizer([(sgd(), "other")], default=sgd()),
    "MultitaskOptimizerWrapper": lambda: legacy_opt.MultitaskOptimizerWrapper(sgd()),
    "VariableClippingOptimizer": lambda: legacy_opt.VariableClippingOptimizer(
        sgd(), {each: [1] for each in v1.trainable_variables() if each.shape.rank == 2}, 1.0
    ),
}


def optimizers():
    """Returns a dict from class names to functions that make an optimizer from the global step.

    Leaves out the classes that `extend_with_decoupled_weight_decay` has made.
    """
    made = {CASES[name].optimizer.__name__: CASES[name].make for name in one_of_each_class()}
    return {name: make for name, make in made.items() if "With" not in name}


class Damage(NamedTuple):
    """How much of a variable, its slots and the other variables is NaN or infinite.

    Attributes:
      variable: how much of the variable is not finite, one of `_EXTENTS`.
      state: the largest extent among the variable's slots; "" if it has no slots.
      other: whether other variables, apart from the slots, have elements that are not finite.
      error: the class name of the error that a step raised, or "". After an error, `variable`,
        `state` and `other` have their defaults.
    """

    variable: str = ""
    state: str = ""
    other: bool = False
    error: str = ""

    def __str__(self):
        if self.error:
            return self.error
        cell = self.variable
        if self.state not in ("", self.variable):
            cell += f" (state: {self.state})"
        return cell + (", and other variables" if self.other else "")


def extent(array):
    """Returns how much of an array is not finite, as one of `_EXTENTS`."""
    wrong = ~np.isfinite(np.asarray(array, np.float64))
    if not wrong.any():
        return "nothing"
    if wrong.shape != SHAPE:
        return "part" if not wrong.all() else "all"
    element, row = np.zeros(SHAPE, bool), np.zeros(SHAPE, bool)
    element[ROW, COLUMN] = row[ROW] = True
    for name, mask in (("element", element), ("row", row)):
        if not (wrong & ~mask).any():
            return name
    return "all" if wrong.all() else "rows"


# The extents of damage, from the smallest to the largest:
# "element": only the element whose gradient was not finite;
# "row": elements of this element's row;
# "rows": elements of other rows, too, but not all elements;
# "part": some elements of an array whose shape is not the variable's.
_EXTENTS = ("nothing", "element", "row", "rows", "part", "all")


class Training:
    """A graph that trains three variables.

    The variable `dense` has a dense gradient, and the variable `sparse` has IndexedSlices. The
    values of these two gradients come from placeholders. The gradient of `other` is always 1.
    """

    def __init__(self, make, use_resource):
        with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=use_resource):
            w, table, other = (
                v1.get_variable(name, initializer=tf.ones(shape))
                for name, shape in (("dense", SHAPE), ("sparse", SHAPE), ("other", [3]))
            )
            step = v1.train.get_or_create_global_step()
            rows = (len(IDS), SHAPE[1])
            self.fed = {
                kind: v1.placeholder(tf.float32, shape, kind + "_gradient")
                for kind, shape in zip(KINDS, (SHAPE, rows))
            }
            sliced = tf.IndexedSlices(self.fed["sparse"], tf.constant(IDS), SHAPE)
            self.train_op = make(step).apply_gradients(
                [(self.fed["dense"], w), (sliced, table), (tf.ones([3]), other)], global_step=step
            )
            self.floating = {
                each.op.name: each
                for each in v1.global_variables()
                if each.dtype.base_dtype.is_floating
            }
            self.initializer = v1.global_variables_initializer()
            self.graph = graph

    def step(self, kind="", value=None):
        """Runs a training step.

        If `kind` is the name of a variable ("dense" or "sparse"), one element of the variable's
        gradient is `value`. All other elements are 0.5.
        """
        fed = {key: np.full(tensor.shape, 0.5, "f") for key, tensor in self.fed.items()}
        if kind:
            fed[kind][ROW if kind == "dense" else IDS.index(ROW), COLUMN] = value
        self.session.run(self.train_op, {self.fed[key]: array for key, array in fed.items()})

    def damage(self, kind):
        """Returns the `Damage` that gradients of the variable `kind` have caused until now."""
        arrays = self.session.run(self.floating)
        variable, state = arrays.pop(kind), []
        for name in list(arrays):
            if name.startswith(kind + "/"):
                state.append(arrays.pop(name))
        others = not all(np.isfinite(array).all() for array in arrays.values())
        worst = max(map(extent, state), key=_EXTENTS.index, default="")
        return Damage(extent(variable), worst, others)

    def measure(self, kind, value):
        """Returns the damage right after a step with `value`, and after `HEALTHY_STEPS` more steps.

        Each measurement uses a new session, because in a used session the initializer of a moving
        average might read the variable before the variable is initialized again.
        """
        with v1.Session(graph=self.graph) as self.session:
            self.session.run(self.initializer)
            return self._measure(kind, value)

    def _measure(self, kind, value):
        try:
            self.step()  # so that GradientAccumulationOptimizer makes an update in the next step
            self.step(kind, value)
            first = self.damage(kind)
            for _ in range(HEALTHY_STEPS):
                self.step()
            return first, self.damage(kind)
        except tf.errors.OpError as error:
            return (Damage(error=type(error).__name__),) * 2


def row(name, make, use_resource=True):
    """Returns an optimizer's row of the table."""
    cells, training = [], Training(make, use_resource)
    for kind in KINDS:
        for value in VALUES.values():
            first, later = training.measure(kind, value)
            cells.append(str(later) if first == later else f"{first}; later {later}")
    return f"| `{name}` | {' | '.join(cells)} |"


def table(made, use_resource=True):
    head = ["optimizer"] + [f"{value}, {kind}" for kind in KINDS for value in VALUES]
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    return "\n".join(lines + [row(name, make, use_resource) for name, make in made.items()])


def wrappers():
    return {name: lambda step, make=make: make() for name, make in WRAPPERS.items()}


def tables():
    """Returns the page's tables by name."""
    return {"optimizers": table(optimizers()), "wrappers": table(wrappers())}


def written_in(page):
    """Returns the tables between a page's markers, by name."""
    return dict(re.findall(r"<!-- (\w+) -->\n(.*?)\n<!-- end -->", page, re.S))


def main(arguments):
    made = tables()
    if arguments == ["docs"]:
        page = PAGE.read_text(encoding="utf-8")
        for name, content in made.items():
            pattern = rf"(<!-- {name} -->\n).*?(<!-- end -->)"
            page = re.sub(pattern, lambda m, c=content: m[1] + c + "\n" + m[2], page, flags=re.S)
        PAGE.write_text(page, encoding="utf-8")
    else:
        print("\n\n".join(made.values()))


if __name__ == "__main__":
    main(sys.argv[1:])
