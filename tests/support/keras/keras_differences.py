"""Measures how Keras' optimizers differ from v1 optimizers (docs/plain_keras.md).

python -m tests.support.keras.keras_differences           prints the table of `CASES`
python -m tests.support.keras.keras_differences PAGE.md   writes the page's tables

The first command runs with Keras 2 or Keras 3. The second command needs Keras 3.
"""

import inspect
import sys
from pathlib import Path
from typing import Any, NamedTuple, Optional

import numpy as np
import tensorflow as tf

from legacy_opt.compat import to_keras
from legacy_opt.compat.in_keras.side_by_side import training_function
from tests.support import running
from tests.support.pages import table, with_part
from tests.support.problems import Problem, Rows

v1 = tf.compat.v1
STEPS = 20
SHAPE = (9, 3)
# The names that the expressions of a `Case` may use. The page shows these expressions.
V1_NAMES = {**vars(v1.train), "to_keras": to_keras}
KERAS_NAMES = {name: getattr(tf.keras.optimizers, name) for name in dir(tf.keras.optimizers)}


class Case(NamedTuple):
    """A v1 optimizer and its nearest counterpart among Keras' own optimizers.

    Attributes:
      v1: the expression that creates the v1 optimizer; it may use the global step as `step`.
      keras: the expression that creates the Keras optimizer.
      velocity: the value that the Keras optimizer's slot `velocity` gets before the first step, or
        None.
    """

    v1: str
    keras: str
    velocity: Optional[float] = None

    def make_v1(self, step=None):
        return eval(self.v1, {**V1_NAMES, "step": step})

    def make_keras(self):
        return eval(self.keras, dict(KERAS_NAMES))


CASES: Any = {
    "GradientDescent": Case("GradientDescentOptimizer(0.1)", "SGD(0.1)"),
    "Momentum": Case("MomentumOptimizer(0.1, 0.9)", "SGD(0.1, 0.9)"),
    "Momentum, Nesterov": Case(
        "MomentumOptimizer(0.1, 0.9, use_nesterov=True)", "SGD(0.1, 0.9, nesterov=True)"
    ),
    "Momentum, learning rate drops": Case(
        "MomentumOptimizer(piecewise_constant(step, [9], [0.1, 0.01]), 0.9)",
        "SGD(schedules.PiecewiseConstantDecay([9], [0.1, 0.01]), 0.9)",
    ),
    "Adam": Case("AdamOptimizer(0.05)", "Adam(0.05, epsilon=1e-8)"),
    "Adagrad": Case("AdagradOptimizer(0.1)", "Adagrad(0.1, epsilon=0.0)"),
    "Adadelta": Case("AdadeltaOptimizer(0.7)", "Adadelta(0.7, epsilon=1e-8)"),
    "RMSProp": Case("RMSPropOptimizer(0.01)", "RMSprop(0.01, epsilon=1e-10)"),
    "RMSProp, velocity set to 1": Case(
        "RMSPropOptimizer(0.01)", "RMSprop(0.01, epsilon=1e-10)", velocity=1.0
    ),
    "RMSProp, momentum, velocity set to 1": Case(
        "RMSPropOptimizer(0.01, momentum=0.9)",
        "RMSprop(0.01, momentum=0.9, epsilon=1e-10)",
        velocity=1.0,
    ),
    "RMSProp, centered, velocity set to 1": Case(
        "RMSPropOptimizer(0.01, centered=True)",
        "RMSprop(0.01, centered=True, epsilon=1e-10)",
        velocity=1.0,
    ),
    "Ftrl": Case("FtrlOptimizer(0.1)", "Ftrl(0.1)"),
    "Ftrl, with options": Case(
        "FtrlOptimizer(0.1, l1_regularization_strength=0.02, beta=0.5, "
        "l2_shrinkage_regularization_strength=0.03)",
        "Ftrl(0.1, l1_regularization_strength=0.02, beta=0.5, "
        "l2_shrinkage_regularization_strength=0.03)",
    ),
}

COUNTERPARTS = {
    "MomentumOptimizer": "SGD",
    "AdamOptimizer": "Adam",
    "AdagradOptimizer": "Adagrad",
    "AdadeltaOptimizer": "Adadelta",
    "RMSPropOptimizer": "RMSprop",
    "FtrlOptimizer": "Ftrl",
}
RENAMED = {"use_nesterov": "nesterov", "beta1": "beta_1", "beta2": "beta_2", "decay": "rho"}


# The gradients.


def dense():
    """Returns a problem with a dense gradient in each step."""
    random = np.random.RandomState(0)
    draw = lambda *shape: random.randn(*shape).astype("float32")  # noqa: E731
    return Problem(
        {"table": draw(*SHAPE)}, [{"table": draw(*SHAPE)} for _ in range(STEPS)], (), "float32"
    )


def rows(choose_ids):
    """Returns a problem with a sparse gradient in each step.

    Args:
      choose_ids: a function of a RandomState and the step number that returns the gradient's ids.
    """
    random = np.random.RandomState(0)
    value = random.randn(*SHAPE).astype("float32")
    gradients = []
    for number in range(STEPS):
        ids = np.asarray(choose_ids(random, number), np.int64)
        gradients.append({"table": Rows(random.randn(len(ids), SHAPE[1]).astype("float32"), ids)})
    return Problem({"table": value}, gradients, ("table",), "float32")


def some_rows():
    """Returns a problem whose gradients have three of the nine rows, but never the last row."""
    return rows(lambda random, number: random.permutation(SHAPE[0] - 1)[:3])


def repeated_ids():
    """Returns a problem whose gradients have all nine rows; three of the ids occur twice."""
    return rows(lambda random, number: [*range(SHAPE[0]), *random.permutation(SHAPE[0])[:3]])


PROBLEMS = {"dense": dense, "some rows": some_rows, "repeated ids": repeated_ids}


# The runs.


def session_run(problem, case):
    """Trains with the v1 optimizer in a Session; returns the table's initial and later values."""
    steps = running.session(problem, case.make_v1, use_resource=True).steps
    return [problem.values["table"]] + [step["table"] for step in steps]


def keras_run(problem, optimizer, velocity=None):
    """Trains with Keras in a `tf.function`; returns the table's initial and later values."""
    table = tf.Variable(problem.values["table"], name="table")
    set_velocity(optimizer, table, velocity)

    def train(tensors):
        optimizer.apply_gradients([(gradient(tensors["table"], table), table)])

    train = training_function(train, [running.signature(problem)])
    values = [table.numpy()]
    for step in problem.gradients:
        train(tf.nest.map_structure(tf.constant, running._plain(step)))
        values.append(table.numpy())
    return values


def gradient(tensors, table):
    """Returns a gradient of the table.

    The dense shape of a sparse gradient is a tensor, as in the gradient of an embedding layer.
    """
    if not isinstance(tensors, tuple):
        return tensors
    return tf.IndexedSlices(*tensors, tf.constant(table.shape.as_list(), tf.int64))


def set_velocity(optimizer, table, value):
    if value is None:
        return
    optimizer.build([table])
    variables = optimizer.variables
    for variable in variables() if callable(variables) else variables:
        if "velocity" in variable.name:
            variable.assign(tf.fill(variable.shape, value))


# The measurements.


class Difference(NamedTuple):
    """The difference between the final values of two runs.

    Attributes:
      largest: the largest difference of an element.
      share: `largest` divided by the largest change of an element during the v1 run.
    """

    largest: float
    share: float

    def __str__(self):
        if self.share < 1e-4:
            return f"{self.largest:.0e}" if self.largest else "0"
        return f"{self.largest:.2g} ({100 * self.share:.0f} %)"


def difference(actual, expected):
    """Returns the `Difference` of two runs."""
    gap = np.max(np.abs(actual[-1] - expected[-1]))
    return Difference(float(gap), float(gap / np.max(np.abs(expected[-1] - expected[0]))))


def move_without_gradient(values, problem):
    """Returns the largest change of an element in a step in which its row has no gradient."""
    moves = [0.0]
    for before, after, step in zip(values, values[1:], problem.gradients):
        others = np.setdiff1d(np.arange(SHAPE[0]), step["table"].ids)
        moves.append(float(np.max(np.abs(after - before)[others])))
    return max(moves)


def whole_table_operations(apply, rows=1009):
    """Counts the operations of an update that compute a tensor with all rows of the table.

    Args:
      apply: a function that builds the update from a list of (gradient, variable) pairs.
      rows: the table's number of rows; must differ from all other dimensions.
    """
    table = tf.Variable(tf.ones([rows, 2]), name="table")

    @tf.function(input_signature=[tf.TensorSpec([3, 2]), tf.TensorSpec([3], tf.int64)])
    def train(values, ids):
        apply([(gradient((values, ids), table), table)])

    graph = train.get_concrete_function().graph
    return sum(_computes(operation, rows) for operation in graph.get_operations())


def _computes(operation, rows):
    if operation.type in ("ReadVariableOp", "Identity", "Placeholder", "Const"):
        return False
    shapes = [output.shape for output in operation.outputs]
    return any(shape.rank and shape[0] == rows for shape in shapes)


class Row(NamedTuple):
    """The measurements of one case.

    Attributes:
      differences: a dict from the names in `PROBLEMS` to the `Difference` of each problem.
      moves: the results of `move_without_gradient` for the v1 and the Keras optimizer.
      operations: the results of `whole_table_operations` for the v1 and the Keras optimizer.
    """

    differences: dict
    moves: tuple
    operations: tuple


def measure(case):
    """Measures one case."""
    differences, moves = {}, ()
    for name, make in PROBLEMS.items():
        problem = make()
        expected = session_run(problem, case)
        actual = keras_run(problem, case.make_keras(), case.velocity)
        differences[name] = difference(actual, expected)
        if name == "some rows":
            moves = tuple(move_without_gradient(run, problem) for run in (expected, actual))
    return Row(differences, moves, operations_of(case))


def operations_of(case):
    """Counts the whole-table operations of a case's v1 and Keras optimizers."""
    step = tf.Variable(0, dtype=tf.int64)
    optimizers = case.make_v1(step), case.make_keras()
    return tuple(whole_table_operations(optimizer.apply_gradients) for optimizer in optimizers)


# Small examples, which train a table with three rows of ones.


class Example(NamedTuple):
    """A few steps whose result can be computed by hand.

    Attributes:
      what: a description of the gradients.
      keras: the expression that creates Keras' optimizer.
      v1: the expression that creates the v1 optimizer. If the example needs an argument that v1
        optimizers do not have (clipnorm), the expression calls `to_keras`, which makes a Keras
        optimizer with the v1 formula.
      gradients: for each step a list of pairs (id, gradient); ids may repeat.
      row: the row whose values the page shows.
    """

    what: str
    keras: str
    v1: str
    gradients: list
    row: int = 0

    def problem(self):
        """Returns the example as a `Problem`."""
        steps = []
        for pairs in self.gradients:
            values = np.asarray([[value] for _, value in pairs], np.float32)
            steps.append({"table": Rows(values, np.asarray([id for id, _ in pairs], np.int64))})
        return Problem({"table": np.ones((3, 1), np.float32)}, steps, ("table",), "float32")

    def values(self):
        """Returns the row's values after each step, as a list for v1 and a list for Keras."""
        case, problem = Case(self.v1, self.keras), self.problem()
        is_bridged = self.v1.startswith("to_keras")
        expected = keras_run(problem, case.make_v1()) if is_bridged else session_run(problem, case)
        runs = expected, keras_run(problem, case.make_keras())
        return tuple([float(value[self.row, 0]) for value in run[1:]] for run in runs)


EXAMPLES: Any = {
    "square": Example(
        "gradients 3 and 4 for the same row",
        "Adagrad(0.1, epsilon=0.0)",
        "AdagradOptimizer(0.1)",
        [[(0, 3.0), (0, 4.0)]],
    ),
    "clip": Example(
        "gradients 3 and 4 for the same row",
        "SGD(1.0, clipnorm=1.0)",
        'to_keras(GradientDescentOptimizer(1.0), clipnorm=1.0, api="keras3")',
        [[(0, 3.0), (0, 4.0)]],
    ),
    "start": Example(
        "gradient 0.01",
        "RMSprop(0.1, epsilon=1e-10)",
        "RMSPropOptimizer(0.1)",
        [[(0, 0.01)]],
    ),
    "rest": Example(
        "gradient 1 for a row in step 1, and for another row in steps 2 and 3",
        "SGD(0.1, 0.9)",
        "MomentumOptimizer(0.1, 0.9)",
        [[(0, 1.0)], [(1, 1.0)], [(1, 1.0)]],
    ),
    "never": Example(
        "a row that has had no gradient", "Ftrl(0.1)", "FtrlOptimizer(0.1)", [[(0, 1.0)]], row=1
    ),
    "drop": Example(
        "gradient 1 in each step; after the first step the learning rate drops to 0",
        "SGD(schedules.PiecewiseConstantDecay([0], [0.1, 0.0]), 0.9)",
        "MomentumOptimizer(piecewise_constant(step, [0], [0.1, 0.0]), 0.9)",
        [[(0, 1.0)]] * 3,
    ),
}


# The page.


def page(text):
    """Returns the page's text with new tables, measured with the installed TensorFlow."""
    parts = {
        "versions of the differences": versions(),
        "examples": examples(),
        "cases": cases(),
        "arguments": arguments(),
    }
    for name, content in parts.items():
        text = with_part(text, name, content)
    return text


def versions():
    """Returns the page's sentence with the versions of Keras and TensorFlow."""
    facts = tf.keras.__version__, tf.__version__
    return "The figures are those of Keras {} on TensorFlow {}.\n".format(*facts)


def examples():
    """Returns the table of the examples."""
    rows = []
    for example in EXAMPLES.values():
        results = [", ".join(f"{value:.3g}" for value in run) for run in example.values()]
        expressions = (f"`{expression}`" for expression in (example.v1, example.keras))
        rows.append([example.what, *map("<br>".join, zip(expressions, results))])
    return table(["what is done", "v1", "Keras"], rows)


def cases():
    """Returns the table of the cases."""
    rows = []
    for case in CASES.values():
        figures = measure(case)
        name = f"`{case.keras}`" + (", velocity set to 1" if case.velocity else "")
        ends = map(str, figures.differences.values())
        pairs = "{:.2g} → {:.2g}".format(*figures.moves), "{} → {}".format(*figures.operations)
        rows.append([f"`{case.v1}`", name, *ends, *pairs])
    return table(["v1", "Keras", *PROBLEMS, "rest moves", "whole table"], rows)


def arguments():
    """Returns the table of the arguments whose names or defaults differ between v1 and Keras.

    If only Keras has an `epsilon`, the table lists this argument, too.
    """
    rows = []
    for v1_class, keras_class in COUNTERPARTS.items():
        theirs = _parameters(KERAS_NAMES[keras_class])
        ours = _parameters(V1_NAMES[v1_class])
        names = [(name, RENAMED.get(name, name)) for name in ours]
        for v1_name, name in names + [(None, "epsilon")] * ("epsilon" not in ours):
            if name in theirs and (name, theirs[name]) != (v1_name, ours.get(v1_name)):
                pair = _written(v1_name, ours), _written(name, theirs)
                rows.append([f"`{v1_class}`", pair[0], f"`{keras_class}`", pair[1]])
    return table(["v1", "argument", "Keras", "argument"], rows)


def _parameters(cls):
    """Returns a constructor's defaults by argument name, without defaults that are None."""
    parameters = inspect.signature(cls.__init__).parameters.values()
    left_out = (None, inspect.Parameter.empty)
    return {item.name: item.default for item in parameters if item.default not in left_out}


def _written(name, parameters):
    return "–" if name is None else f"`{name}={parameters[name]!r}`"


if __name__ == "__main__":
    if sys.argv[1:]:
        path = Path(sys.argv[1])
        path.write_text(page(path.read_text(encoding="utf-8")), encoding="utf-8")
    else:
        print(cases())
