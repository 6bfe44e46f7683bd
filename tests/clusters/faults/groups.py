"""Graphs that train all public optimizers and wrappers, many in one graph.

Starting a process and a Session takes longer than the training between two kills, so the optimizers
of a graph share them. Each optimizer trains two variables: a matrix with a dense gradient, and a
table with a sparse gradient in which ids repeat. Each has its own global step.
"""

import warnings

import numpy as np
import tensorflow as tf

from tests.clusters.faults.model import Model
from tests.support import problems, running
from tests.support.every_optimizer import OPTIMIZERS, loss_of

v1 = tf.compat.v1
COUNT = 4  # With fewer groups, starting a Session takes seconds.
EVERY = 5  # batches between checkpoints; odd, so that every other save is in an accumulation
CYCLE = 12  # batches, which then repeat
GROUPS = {
    f"group {number + 1}": list(OPTIMIZERS)[number::COUNT] for number in range(COUNT)
}  # {name of the group: names of its optimizers}


def build(name):
    """Builds the `Model` of a group. Half of its variables are resource variables."""
    problem = _problem()
    gradients = running._placeholders(problem)
    step = v1.train.get_or_create_global_step()
    train_ops = [
        _train_op(each, problem, gradients, use_resource=number % 2 == 0)
        for number, each in enumerate(GROUPS[name])
    ]
    with tf.control_dependencies(train_ops):
        train_op = v1.assign_add(step, 1).op

    def feed(batch):
        return running._feed(gradients, problem.gradients[batch % CYCLE])

    return Model(feed, train_op, [step], EVERY)


def _train_op(name, problem, gradients, use_resource):
    # A MultiOptimizer looks at the beginnings of names.
    names = {f"{each}/{name}": each for each in problem.values}
    values = {full: problem.values[each] for full, each in names.items()}
    made = running._variables(problem._replace(values=values), use_resource)
    variables = {names[full]: variable for full, variable in made.items()}
    zero = v1.zeros_initializer(tf.int64)
    step = v1.get_variable(f"{name}/global_step", [], tf.int64, zero, trainable=False)
    optimizer = OPTIMIZERS[name](step, variables)
    optimizer.global_step_is_advanced = True  # Adafactor reads the step of the graph
    loss = loss_of(problem, variables, gradients)
    with tf.name_scope(name), warnings.catch_warnings():
        # Two optimizers exclude variables from weight decay that are not in this graph.
        warnings.filterwarnings("ignore", ".*exclude_from_weight_decay", UserWarning)
        # Without var_list, the optimizer would train the variables of all optimizers.
        return optimizer.minimize(loss, step, list(variables.values()))


def _problem():
    dense, sparse = (
        problems.make(kind, steps=CYCLE, seed=seed)
        for seed, kind in enumerate(["dense", "duplicates"])
    )
    pairs = zip(dense.gradients, sparse.gradients)
    gradients = [{"matrix": one["matrix"], "table": other["table"]} for one, other in pairs]
    # MultitaskOptimizerWrapper skips the update of a variable whose gradient is zero.
    gradients[4]["matrix"] = np.zeros_like(gradients[4]["matrix"])
    values = {"matrix": dense.values["matrix"], "table": sparse.values["table"]}
    return sparse._replace(values=values, gradients=gradients, sparse=("table",))
