"""The types in the signatures of the public API, under the names that the signatures show.

They are plain aliases of what every TensorFlow from 1.15 on has, so that `typing.get_type_hints`
resolves them everywhere. What is of Keras is `Any`: no Keras need be there.
"""

from __future__ import annotations

import os
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    Iterable,
    List,
    Mapping,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
)

import numpy as np
import tensorflow as tf

# What a class method makes: an object of the class that it is called on.
Self = TypeVar("Self")
# TensorFlow's own.
Tensor = tf.Tensor
Variable = tf.Variable  # ref or resource
Operation = tf.Operation
DType = tf.DType
TensorShape = tf.TensorShape
if TYPE_CHECKING:  # the stubs of TensorFlow that checkers bring along do not have tf.compat
    from tensorflow.compat.v1.train import Optimizer as V1Optimizer
    from tensorflow.compat.v1.train import Saver
else:
    V1Optimizer = tf.compat.v1.train.Optimizer  # also those of this package, and your own
    Saver = tf.compat.v1.train.Saver
# A subclass, which a decorator returns as what it is.
OptimizerClass = TypeVar("OptimizerClass", bound=Type[V1Optimizer])

# What `tf.as_dtype` takes: tf.float32, np.float32, "float32".
DTypeLike = Union[tf.DType, np.dtype, str, type]
# What `tf.TensorShape` takes.
Shape = Union[tf.TensorShape, Iterable[int]]
# A scalar that is known when it is given.
TensorLike = Union[float, tf.Tensor, tf.Variable]
# A scalar, or a function that returns it and is called in every step.
Hyperparameter = Union[TensorLike, Callable[[], TensorLike]]
# A function from the global step, a tensor, to a scalar.
FunctionOfStep = Callable[[tf.Tensor], TensorLike]
# What `get_linear_decay_fn` and its like return; a step may be a number, too.
DecayFunction = Callable[[TensorLike], tf.Tensor]
# What counts the steps: an int32 or int64 scalar.
GlobalStep = Union[tf.Variable, tf.Tensor]
# A scalar tensor, or in eager code a function that returns it.
Loss = Union[tf.Tensor, Callable[[], tf.Tensor]]
# Of a whole variable, or of some of its rows.
Gradient = Union[tf.Tensor, tf.IndexedSlices]
# None where the loss does not depend on the variable.
GradAndVar = Tuple[Union[tf.Tensor, tf.IndexedSlices, None], tf.Variable]
GradsAndVars = Iterable[GradAndVar]
# What clips gradients, or changes them otherwise.
FunctionOfPairs = Callable[[List[GradAndVar]], List[GradAndVar]]
# A path that the user names.
Path = Union[str, bytes, os.PathLike]
# One of Keras 2 or Keras 3.
KerasOptimizer = Any
KerasModel = Any
KerasVariable = Any
KerasSchedule = Any
# What a checkpoint goes to or comes from; the keys are names in the checkpoint.
ModelOrVariables = Union[KerasModel, Iterable[KerasVariable], Mapping[str, KerasVariable]]
# From names of variables to names in a checkpoint, where None leaves a name as it is.
NameMap = Union[Mapping[str, Optional[str]], Callable[[str], Optional[str]]]
