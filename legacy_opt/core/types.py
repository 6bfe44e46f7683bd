"""Type aliases of the public signatures.

The aliases use only types that exist in every TensorFlow from 1.15 on, so that
`typing.get_type_hints` works everywhere. Keras types are `Any`: Keras may not be installed.
"""

from __future__ import annotations

import os
import typing
from typing import Any, Callable, Iterable, List, Mapping, Optional, Tuple, Type, TypeVar, Union

import numpy as np
import tensorflow as tf

Tensor = tf.Tensor
Variable = tf.Variable  # a ref variable or a resource variable
Operation = tf.Operation
DType = tf.DType
TensorShape = tf.TensorShape
# TensorFlow's stubs have no tf.compat. Type checkers assume Any for a class they cannot import.
if typing.TYPE_CHECKING:
    from tensorflow.compat.v1.train import Optimizer as V1Optimizer
    from tensorflow.compat.v1.train import Saver
else:
    V1Optimizer = tf.compat.v1.train.Optimizer  # also the base class of this package's optimizers
    Saver = tf.compat.v1.train.Saver
# An instance of the optimizer class that a class method is called on.
Self = TypeVar("Self", bound=V1Optimizer)
# An optimizer class, for decorators that return a subclass of their argument.
OptimizerClass = TypeVar("OptimizerClass", bound=Type[V1Optimizer])

# An argument of `tf.as_dtype`: tf.float32, np.float32, "float32".
DTypeLike = Union[tf.DType, np.dtype, str, type]
# An argument of `tf.TensorShape`.
Shape = Union[tf.TensorShape, Iterable[Optional[int]]]
# A scalar.
TensorLike = Union[float, tf.Tensor, tf.Variable]
# A scalar, or a function that returns a scalar and is called in every training step.
Hyperparameter = Union[TensorLike, Callable[[], TensorLike]]
# A function from the global step (a tensor) to a scalar.
FunctionOfStep = Callable[[tf.Tensor], TensorLike]
# A function from the global step (a tensor or a number) to a tensor; see `get_linear_decay_fn`.
DecayFunction = Callable[[TensorLike], tf.Tensor]
# The number of training steps, an int32 or int64 scalar.
GlobalStep = Union[tf.Variable, tf.Tensor]
# A scalar tensor, or in eager code a function that returns a scalar tensor.
Loss = Union[tf.Tensor, Callable[[], tf.Tensor]]
Gradient = Union[tf.Tensor, tf.IndexedSlices]
# The gradient is None if the loss does not depend on the variable.
GradAndVar = Tuple[Union[tf.Tensor, tf.IndexedSlices, None], tf.Variable]
GradsAndVars = Iterable[GradAndVar]
# A function that changes gradients, for example clips them.
FunctionOfPairs = Callable[[List[GradAndVar]], List[GradAndVar]]
Path = Union[str, bytes, os.PathLike]
# Types of Keras 2 or Keras 3.
KerasOptimizer = Any
KerasLayer = Any
KerasModel = Any
KerasVariable = Any
KerasSchedule = Any
# A model or variables to save or load. The keys of a mapping are names in the checkpoint.
ModelOrVariables = Union[KerasModel, Iterable[KerasVariable], Mapping[str, KerasVariable]]
# Maps names of variables to names in a checkpoint; None leaves the variable out.
NameMap = Union[Mapping[str, Optional[str]], Callable[[str], Optional[str]]]
