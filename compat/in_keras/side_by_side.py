"""Trains new variables on a small problem, to compare what several optimizers compute."""

from __future__ import annotations

import contextlib
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.recorded.numpy import Rows

v1 = tf.compat.v1


class Problem(NamedTuple):
    """The starting values of variables, and the gradients of each training step."""

    values: Dict[str, np.ndarray]  # by the names of the variables
    gradients: Sequence[Mapping[str, Any]]  # for each step, arrays or `Rows` by these names

    def specs(self) -> Iterator[Tuple[tf.DType, Tuple[Any, ...]]]:
        """Yields the dtype and shape of each tensor that one step's gradients consist of."""
        for name, value in self.values.items():
            dtype = tf.as_dtype(value.dtype)
            if isinstance(self.gradients[0][name], Rows):
                yield tf.int64, (None,)
                yield dtype, (None,) + value.shape[1:]
            else:
                yield dtype, value.shape

    def inputs(self, gradients: Mapping[str, Any]) -> List[np.ndarray]:
        """Returns one step's gradients as arrays that fit `specs`."""
        return tf.nest.flatten([gradients[name] for name in self.values])

    def pairs(
        self, tensors: Sequence[tf.Tensor], variables: Dict[str, tf.Variable]
    ) -> List[Tuple[Any, tf.Variable]]:
        """Returns (gradient, variable) pairs from a flat list of one step's tensors."""
        remaining = iter(tensors)
        pairs = []
        for name, value in self.values.items():
            gradient = next(remaining)
            if isinstance(self.gradients[0][name], Rows):
                shape = tf.constant(value.shape, tf.int64)  # a tensor, as for embedding layers
                gradient = tf.IndexedSlices(next(remaining), gradient, shape)
            pairs.append((gradient, variables[name]))
        return pairs


@contextlib.contextmanager
def scope(in_session: bool = False) -> Iterator[Callable[[], None]]:
    """Makes a graph and a Session; yields a function that initializes the graph's variables.

    In eager execution, makes nothing, unless `in_session`. Warnings that a pattern matches no
    variable are ignored, because a user's patterns are for the names of other variables.
    """
    with warnings.catch_warnings(), contextlib.ExitStack() as stack:
        warnings.filterwarnings("ignore", ".* matches no variable of this step")
        if tf.executing_eagerly() and not in_session:
            yield lambda: None
            return
        stack.enter_context(tf.Graph().as_default())
        session = stack.enter_context(v1.Session())
        yield lambda: session.run(v1.global_variables_initializer())


def training(optimizer: Any, problem: Problem, named: bool, **arguments: Any) -> Training:
    """Returns a `FunctionTraining` of new variables; inside of a graph, a `SessionTraining`.

    If `named`, the variables get the names in the problem, by which an optimizer may select them.
    `arguments` are those of `SessionTraining`.
    """
    variables = {
        name: tf.compat.v2.Variable(value, name=name if named else None)
        for name, value in problem.values.items()
    }
    if tf.executing_eagerly():
        return FunctionTraining(optimizer, problem, variables)
    return SessionTraining(optimizer, problem, variables, **arguments)


def training_function(
    train: Callable[..., None], signature: Sequence[Any], **options: Any
) -> Callable:
    """Returns a `tf.function` of a training step that rounds like a Session and Keras' `fit`.

    Both optimize their graphs, which may change roundings. TensorFlow does not optimize the graph
    of a function that returns nothing, so the function returns a number.
    """

    def train_and_return(*tensors: tf.Tensor) -> tf.Tensor:
        train(*tensors)
        return tf.constant(0)

    return tf.function(train_and_return, input_signature=signature, **options)


class FunctionTraining:
    """The training of variables, a dict by name, with a Keras optimizer in a `tf.function`."""

    def __init__(self, optimizer: Any, problem: Problem, variables: Dict[str, tf.Variable]):
        self.optimizer = optimizer
        self._problem = problem
        self.variables = variables
        signature = [tf.TensorSpec(shape, dtype) for dtype, shape in problem.specs()]

        def train(*tensors: tf.Tensor):
            optimizer.apply_gradients(problem.pairs(tensors, variables))

        self._train = training_function(train, signature, autograph=False)

    def step(self, gradients: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Trains one step; returns the values of the variables, a dict of arrays by name."""
        self._train(*map(tf.constant, self._problem.inputs(gradients)))
        return self.values(self.variables)

    def values(self, tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Returns the values of a dict of tensors or variables."""
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def assign(self, arrays: Mapping[str, np.ndarray]):
        """Sets the variables to the values in a dict of arrays by name."""
        for name, variable in self.variables.items():
            variable.assign(arrays[name])


class SessionTraining:
    """The training of variables in the default graph, with the default Session.

    It has the methods of `FunctionTraining`. The optimizer may be a v1 optimizer, too; `arguments`
    are the keyword arguments of `optimizer.apply_gradients`.
    """

    def __init__(
        self, optimizer: Any, problem: Problem, variables: Dict[str, tf.Variable], **arguments: Any
    ):
        self.optimizer = optimizer
        self._problem = problem
        self.variables = variables
        self._inputs = [v1.placeholder(dtype, shape) for dtype, shape in problem.specs()]
        pairs = problem.pairs(self._inputs, variables)
        self._train = optimizer.apply_gradients(pairs, **arguments)

    def step(self, gradients: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        inputs = dict(zip(self._inputs, self._problem.inputs(gradients)))
        v1.get_default_session().run(self._train, inputs)
        return self.values(self.variables)

    def values(self, tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        return v1.get_default_session().run(tensors)

    def assign(self, arrays: Mapping[str, np.ndarray]):
        for name, variable in self.variables.items():
            variable.load(arrays[name], v1.get_default_session())


Training = Union[FunctionTraining, SessionTraining]
