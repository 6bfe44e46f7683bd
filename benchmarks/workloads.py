"""The workloads: graphs that run little more than the optimizer's update.

* The dense gradient is a tensor in memory, read once per step and shared by all variables of the
  workload. It is neither computed nor copied.
* The ids of sparse gradients are in memory, for `BATCHES` batches. A training step uses the batch
  whose number is the global step modulo `BATCHES`. There are so many batches that their rows do not
  stay in the processor's cache. The gradient's values are the same in all batches. For each
  optimizer, TensorFlow sums the rows of duplicate ids in the step.
* The step is called through `Session.make_callable`, without the overhead of `Session.run`.

The benchmarks compute ratios of step times. In a real model, other operations take time, too, so
the ratios are nearer to 1.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

v1 = tf.compat.v1

BATCHES = 512
_ZIPF_EXPONENT = 1.2
_SCATTERING_PRIME = 7368787  # spreads the frequent ids over the table


class Workload(NamedTuple):
    """The sizes of the variables and gradients of a training step.

    Attributes:
      name: the workload's name, such as "W1".
      about: a short description for the report.
      shape: the shape of each variable.
      variables: the number of variables.
      ids: the number of ids in a sparse gradient, duplicates included; 0 means a dense gradient.
      grown_from: the name of a workload that has fewer rows and is otherwise equal, or "".
    """

    name: str
    about: str
    shape: tuple
    variables: int = 1
    ids: int = 0
    grown_from: str = ""

    def scaled_down(self, factor):
        """Returns a smaller workload of the same kind."""
        return self._replace(
            shape=(max(1, self.shape[0] // factor),) + self.shape[1:],
            variables=max(1, self.variables // factor),
            ids=self.ids and max(2, self.ids // factor),
        )


WORKLOADS = [
    Workload("W1", "one matrix of 10 M", (2500, 4000)),
    Workload("W2", "200 variables of 64x64", (64, 64), variables=200),
    Workload("W3", "4,096 ids of 1 M x 16", (10**6, 16), ids=4096),
    Workload("W4", "4,096 ids of 10 M x 16", (10**7, 16), ids=4096, grown_from="W3"),
]


class Contestant:
    """One optimizer on one workload, in a separate graph and session.

    Args:
      workload: the `Workload`.
      make: a function that takes the global step variable and returns the optimizer.
      use_resource: whether to use resource variables instead of ref variables.

    Attributes:
      step: a callable that runs one training step.
      variables: the trained variables.
      optimizer: the name of the optimizer's class.
      state_bytes: a dict from slot name to the size in bytes, summed over all variables.
    """

    def __init__(self, workload, make, use_resource):
        with tf.Graph().as_default():
            v1.set_random_seed(1)
            self.variables = [
                v1.get_variable(
                    f"variable_{i}",
                    workload.shape,
                    initializer=v1.zeros_initializer(),
                    use_resource=use_resource,
                )
                for i in range(workload.variables)
            ]
            global_step = v1.get_variable(
                "global_step",
                [],
                tf.int64,
                v1.zeros_initializer(),
                trainable=False,
                use_resource=use_resource,
                collections=[v1.GraphKeys.GLOBAL_VARIABLES, v1.GraphKeys.GLOBAL_STEP],
            )
            optimizer = make(global_step)
            self.optimizer = type(optimizer).__name__
            gradient = gradient_of(workload)(global_step)
            train = optimizer.apply_gradients(
                [(gradient, variable) for variable in self.variables], global_step=global_step
            )
            self.state_bytes = {
                name: sum(_bytes(optimizer.get_slot(variable, name)) for variable in self.variables)
                for name in optimizer.get_slot_names()
            }
            self._session = v1.Session()
            self._session.run(v1.global_variables_initializer())
            self.step = self._session.make_callable(train)

    def value(self, variable):
        """Returns the value of a variable or slot as an array."""
        return self._session.run(variable)

    def close(self):
        """Frees the variables."""
        self.step = None
        self._session.close()
        self._session = None


def _bytes(variable):
    if variable is None:  # the optimizer has this slot only for some variables
        return 0
    return variable.shape.num_elements() * variable.dtype.base_dtype.size


def gradient_of(workload):
    """Returns a function that takes the global step and returns the gradient.

    The gradients of all contestants are equal.
    """

    def resident(value):  # a variable that is not trained
        return v1.Variable(value, trainable=False, use_resource=True)

    shape = (workload.ids,) + workload.shape[1:] if workload.ids else workload.shape
    values = resident((0.1 * np.random.RandomState(1).randn(*shape)).astype(np.float32))
    if not workload.ids:
        return lambda step: values.read_value()
    batches = resident(zipf_ids(workload))

    def sparse(step):
        ids = tf.gather(batches, tf.convert_to_tensor(step) % BATCHES)
        return tf.IndexedSlices(values.read_value(), ids, tf.constant(workload.shape, tf.int64))

    return sparse


def zipf_ids(workload):
    """Returns an array [BATCHES, ids] of row numbers with a Zipf distribution."""
    rows = workload.shape[0]
    ranks = np.random.RandomState(1).zipf(_ZIPF_EXPONENT, (BATCHES, workload.ids)) % rows
    return ranks * _SCATTERING_PRIME % rows
