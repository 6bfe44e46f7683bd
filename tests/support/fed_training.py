"""Trains with a v1 optimizer in a separate graph, and returns all variables by name."""

import tensorflow as tf

from tests.support import running

v1 = tf.compat.v1


class FedTraining:
    """Trains in a separate graph and Session; the gradients are fed through placeholders.

    Args:
      make: a function from the global step variable to the optimizer.
      problem: the `problems.Problem`.
      use_resource: whether to use resource variables instead of ref variables.

    Attributes:
      variables: all variables of the graph by their names in a checkpoint.
      slots: a dict from (variable name, slot name) to the slot variable's name.
      of_optimizer: the names of the variables that `optimizer.variables()` returns.
    """

    def __init__(self, make, problem, use_resource=False):
        self.problem = problem
        with tf.Graph().as_default() as graph:
            variables = running._variables(problem, use_resource)
            step = running._global_step(problem.global_step, use_resource)
            self.placeholders = running._placeholders(problem)
            optimizer = make(step)
            pairs = running._as_gradients(problem, self.placeholders, variables)
            self.train_op = optimizer.apply_gradients(pairs, global_step=step)
            self.variables = {variable.op.name: variable for variable in v1.global_variables()}
            slots = running.slots_of(optimizer, variables)
            self.slots = {key: slot.op.name for key, slot in slots.items()}
            self.of_optimizer = [variable.op.name for variable in optimizer.variables()]
            self.saver = v1.train.Saver()
            initializer = v1.global_variables_initializer()
        self.session = v1.Session(graph=graph)
        self.session.run(initializer)

    def save(self, path):
        with self.session.graph.as_default():
            return self.saver.save(self.session, path)

    def restore(self, path):
        with self.session.graph.as_default():
            self.saver.restore(self.session, path)

    def train(self, first, last):
        """Runs the training steps from `first` to `last` - 1.

        Returns:
          A list: for each step, the values of all variables by name, after the step.
        """
        values = []
        for gradients in self.problem.gradients[first:last]:
            self.session.run(self.train_op, running._feed(self.placeholders, gradients))
            values.append(self.session.run(self.variables))
        return values
