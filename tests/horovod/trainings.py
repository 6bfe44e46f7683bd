"""Trainings in the ranks of Horovod, and trainings in a single process for comparison."""

import functools
import itertools
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tests.support import problems, running
from tests.support.every_optimizer import OPTIMIZERS
from tests.support.problems import Rows

v1 = tf.compat.v1
STEPS = 12


class Way(NamedTuple):
    """How Horovod sends sparse gradients, and whether variables are resource variables."""

    sparse_as_dense: bool
    use_resource: bool

    def __str__(self):
        sent = "sparse_as_dense" if self.sparse_as_dense else "sparse"
        return f"{sent}, {'resource' if self.use_resource else 'ref'}"


WAYS = [Way(*each) for each in itertools.product([False, True], [False, True])]


def parts(name, way):
    """Returns the steps before and after the restart, as slices."""
    # After an odd number of steps, variables of GradientAccumulationOptimizer contain sparse
    # gradients. The shapes of these variables differ between the ranks, so Horovod cannot broadcast
    # the variables. After an even number of steps, the variables are empty.
    middle = 5 if name != "GradientAccumulationOptimizer" or way.sparse_as_dense else 6
    return slice(middle), slice(middle, None)


@functools.lru_cache(None)
def problem_of(rank):
    """Returns a rank's initial values and gradients. Ids repeat within and across ranks."""
    dense, sparse = (
        problems.make(kind, steps=STEPS, seed=2 * rank + number)
        for number, kind in enumerate(["dense", "duplicates"])
    )
    gradients = [{**one, **other} for one, other in zip(dense.gradients, sparse.gradients)]
    # MultitaskOptimizerWrapper must skip the update of step 4, in which the gradients of all ranks
    # are zero, but not the update of step 8, in which only the gradient of rank 0 is zero.
    for step in [4, 8] if rank == 0 else [4]:
        gradients[step]["vector"] = np.zeros([4], np.float32)
    return sparse._replace(values={**dense.values, **sparse.values}, gradients=gradients)


def problem_of_one_process(ranks, way):
    """Returns the problem of a single process: the values of rank 0, and the mean gradients.

    The means are computed as Horovod computes them for two ranks: the rows of sparse gradients are
    concatenated, dense gradients are added, and the result is divided by the number of ranks.
    """
    each_rank = [problem_of(rank) for rank in range(ranks)]
    first = each_rank[0]
    sparse = () if way.sparse_as_dense else first.sparse

    def mean(name, gradients):
        if name in sparse:
            values, ids = (np.concatenate(parts) for parts in zip(*gradients))
            return Rows(values / np.float32(ranks), ids)
        summands = [problems.dense(gradient, first.values[name]) for gradient in gradients]
        return functools.reduce(np.add, summands) / np.float32(ranks)

    means = [
        {name: mean(name, [step[name] for step in steps]) for name in first.values}
        for steps in zip(*(problem.gradients for problem in each_rank))
    ]
    return first._replace(gradients=means, sparse=sparse)


def loss_of(problem, variables, gradients):
    """Returns a loss whose gradients are exactly the given tensors."""
    terms = []
    for name, variable in variables.items():
        gradient = gradients[name]
        if name in problem.sparse:
            values, ids = gradient
            terms.append(tf.reduce_sum(tf.gather(variable, ids) * values))
        else:
            terms.append(tf.reduce_sum(variable * gradient))
    return tf.add_n(terms)


class Graph:
    """A training in the default graph.

    Args:
      problem: initial values and gradients.
      name: a key of `OPTIMIZERS`.
      way: a `Way`.
      distributed: hvd.DistributedOptimizer, or None for a single process.
      gradients: a dict of tensors by variable name, or None to create placeholders.
    """

    def __init__(self, problem, name, way, distributed=None, gradients=None):
        self.variables = running._variables(problem, way.use_resource)
        self.gradients = gradients or running._placeholders(problem)
        step = v1.train.get_or_create_global_step()
        optimizer = OPTIMIZERS[name](step, self.variables)
        if distributed is not None:
            optimizer = distributed(optimizer, sparse_as_dense=way.sparse_as_dense)
        self.loss = loss_of(problem, self.variables, self.gradients)
        self.train_op = optimizer.minimize(self.loss, global_step=step)
        self.everything = {variable.op.name: variable for variable in v1.global_variables()}


def config():
    """Returns a ConfigProto with one thread per operation, so that the order of sums is fixed."""
    return v1.ConfigProto(intra_op_parallelism_threads=1)


def train(problem, name, way, distributed=None, steps=slice(None), **session_options):
    """Trains in a new graph and a MonitoredTrainingSession.

    Returns:
      A dict of arrays by name: the final values of all global variables, and the values of the
      trained variables after each step.
    """
    found = {}
    with tf.Graph().as_default():
        graph = Graph(problem, name, way, distributed)
        with v1.train.MonitoredTrainingSession(
            config=config(), save_summaries_steps=None, save_summaries_secs=None, **session_options
        ) as session:
            for number in range(STEPS)[steps]:
                feed = running._feed(graph.gradients, problem.gradients[number])
                session.run(graph.train_op, feed)
                for variable, value in session.run(graph.variables).items():
                    found[f"{variable} after step {number}"] = value
            found.update(session.run(graph.everything))
    return found
