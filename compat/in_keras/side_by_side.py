"""Trains new variables on a small problem, to compare what several optimizers compute."""

from __future__ import annotations

import contextlib
import re
import warnings
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.recorded.numpy import Rows

v1 = tf.compat.v1
Names = Tuple[str, ...]


class Problem(NamedTuple):
    """The starting values of variables, and the gradients of each training step."""

    values: Dict[str, np.ndarray]  # by the names of the variables
    # For each step, arrays or `Rows` by these names. Some may be missing in some steps.
    gradients: Sequence[Mapping[str, Any]]

    def trained(self, gradients: Mapping[str, Any]) -> Names:
        """Returns the names of the variables that have a gradient in a step."""
        return tuple(name for name in self.values if gradients.get(name) is not None)

    def is_sparse(self, name: str) -> bool:
        """Whether the gradients of a variable are `Rows`."""
        return any(isinstance(each.get(name), Rows) for each in self.gradients)

    def specs(self, trained: Names) -> Iterator[Tuple[tf.DType, Tuple[Any, ...]]]:
        """Yields the dtype and shape of each tensor that the gradients of a step consist of."""
        for name in trained:
            value = self.values[name]
            dtype = tf.as_dtype(value.dtype)
            if self.is_sparse(name):
                yield tf.int64, (None,)
                yield dtype, (None,) + value.shape[1:]
            else:
                yield dtype, value.shape

    def inputs(self, gradients: Mapping[str, Any]) -> List[np.ndarray]:
        """Returns one step's gradients as arrays that fit `specs`."""
        return tf.nest.flatten([gradients[name] for name in self.trained(gradients)])

    def pairs(
        self, trained: Names, tensors: Sequence[tf.Tensor], variables: Dict[str, tf.Variable]
    ) -> List[Tuple[Any, tf.Variable]]:
        """Returns (gradient, variable) pairs from a flat list of one step's tensors."""
        remaining = iter(tensors)
        pairs = []
        for name, value in self.values.items():
            gradient = next(remaining) if name in trained else None
            if gradient is not None and self.is_sparse(name):
                shape = tf.constant(value.shape, tf.int64)  # a tensor, as for embedding layers
                gradient = tf.IndexedSlices(next(remaining), gradient, shape)
            pairs.append((gradient, variables[name]))
        return pairs

    def by_trained(self, function: Callable[[Names], Any]) -> Dict[Names, Any]:
        """Returns the results of a function for each set of variables that a step trains."""
        return {each: function(each) for each in dict.fromkeys(map(self.trained, self.gradients))}


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


_NO_NAME = re.compile(r"^[^A-Za-z0-9.]|[^A-Za-z0-9_.\\/>-]")  # what a graph's names cannot have


def training(optimizer: Any, problem: Problem, named: bool, **arguments: Any) -> Training:
    """Returns a `FunctionTraining` of new variables; inside of a graph, a `SessionTraining`.

    If `named`, the variables get the names in the problem, by which an optimizer may select them.
    `arguments` are those of `SessionTraining`.
    """
    variables = {
        name: tf.compat.v2.Variable(value, name=_NO_NAME.sub(".", name) if named else None)
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

        def function(trained: Names) -> Callable:
            def train(*tensors: tf.Tensor):
                optimizer.apply_gradients(problem.pairs(trained, tensors, variables))

            signature = [tf.TensorSpec(shape, dtype) for dtype, shape in problem.specs(trained)]
            return training_function(train, signature, autograph=False)

        self._train = problem.by_trained(function)

    def step(self, gradients: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Trains one step; returns the values of the variables, a dict of arrays by name."""
        train = self._train[self._problem.trained(gradients)]
        train(*map(tf.constant, self._problem.inputs(gradients)))
        return self.values(self.variables)

    def values(self, tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        """Returns the values of a dict of tensors or variables."""
        return {name: tensor.numpy() for name, tensor in tensors.items()}

    def assign(self, arrays: Mapping[str, np.ndarray]):
        """Sets the variables to the values in a dict of arrays by name."""
        for name, variable in self.variables.items():
            self.write(variable, arrays[name])

    def write(self, variable: Any, value: Any):
        """Sets a variable, such as a slot."""
        variable.assign(value)


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

        def train(trained: Names) -> Tuple[List[tf.Tensor], Any]:
            inputs = [v1.placeholder(dtype, shape) for dtype, shape in problem.specs(trained)]
            pairs = problem.pairs(trained, inputs, variables)
            return inputs, optimizer.apply_gradients(pairs, **arguments)

        self._train = problem.by_trained(train)

    def step(self, gradients: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        inputs, train = self._train[self._problem.trained(gradients)]
        v1.get_default_session().run(train, dict(zip(inputs, self._problem.inputs(gradients))))
        return self.values(self.variables)

    def values(self, tensors: Mapping[str, Any]) -> Dict[str, np.ndarray]:
        return v1.get_default_session().run(tensors)

    def assign(self, arrays: Mapping[str, np.ndarray]):
        for name, variable in self.variables.items():
            self.write(variable, arrays[name])

    def write(self, variable: Any, value: Any):
        variable.load(value, v1.get_default_session())


Training = Union[FunctionTraining, SessionTraining]
