"""Evaluates Keras models with the averages of their weights, and goes on with the weights.

An optimizer that `to_keras` made from a `MovingAverageOptimizer` or an `SWAOptimizer` has the
averages in slots. While a model has the averages, the slots have the trained weights, so that
nothing is lost if a program ends.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Dict, Iterator, List, NamedTuple, Optional, Tuple

import numpy as np

from legacy_opt import versions
from legacy_opt.core.types import KerasModel, KerasVariable, Variable
from legacy_opt.wrappers.averages import AveragingOptimizer

from .v1_optimizers import nesting


class _Exchange(NamedTuple):
    weight: KerasVariable
    average: Variable
    trained: np.ndarray  # the values before the exchange
    mean: np.ndarray


# {model: its exchanged values}. These are kept outside of the callback, so that any later callback
# can undo what an interrupted evaluation has left.
_exchanges: Any = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def averages(model: KerasModel) -> Iterator[None]:
    """Scope in which the weights of a model are their averages.

    In this scope, evaluate, export or save the model, but do not train. At the end of the scope,
    also after an error, the trained weights are back, and training goes on with the same bits.
    Weights that were assigned in the scope, for example by `load_weights`, keep their new values.
    Weights without an average, such as the statistics of batch normalization, stay as they are.

    In the scope, the optimizer's slots contain the trained weights. Therefore a file of the whole
    model, saved in the scope, contains both.

    Example::

        v1_optimizer = legacy_opt.MovingAverageOptimizer(legacy_opt.LazyAdamOptimizer(0.01), 0.99)
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(legacy_opt.compat.to_keras(v1_optimizer), "mse")
        model.fit(tf.ones([8, 2]), tf.ones([8, 1]), verbose=0)
        with legacy_opt.compat.averages(model):
            model.evaluate(tf.ones([8, 2]), tf.ones([8, 1]), verbose=0)

    Args:
      model: a compiled Keras model whose optimizer `to_keras` made from a `MovingAverageOptimizer`
        or an `SWAOptimizer`, or from wrappers that contain one. If averages are averaged again, the
        outer averages are used.

    Raises:
      TypeError: the model's optimizer has no averages.
    """
    pairs = _weights_and_averages(model)
    try:
        _exchange(model, pairs)
        yield
    finally:
        _undo(model)


def _weights_and_averages(model: KerasModel) -> List[Tuple[KerasVariable, Variable]]:
    optimizer = model.optimizer
    optimizer = getattr(optimizer, "inner_optimizer", optimizer)  # of a LossScaleOptimizer
    driver = getattr(optimizer, "_v1", None)
    nested = [] if driver is None else nesting.nested_optimizers(driver.optimizer)
    optimizers = [each.optimizer for each in nested]
    optimizers = [each for each in optimizers if isinstance(each, AveragingOptimizer)]
    if not optimizers:
        raise TypeError(
            f"The optimizer of the model, {optimizer!r}, has no averages. Compile the model with "
            "to_keras(MovingAverageOptimizer(…)) or to_keras(SWAOptimizer(…))."
        )
    pairs = []
    for weight in model.weights:
        found = [each.average(versions.tf_variable(weight)) for each in optimizers]
        pairs += [(weight, average) for average in found if average is not None][:1]
    return pairs


def _exchange(model: KerasModel, pairs: List[Tuple[KerasVariable, Variable]]) -> None:
    _undo(model)  # an interrupted evaluation may have left the averages in the weights
    values = [
        _Exchange(weight, average, versions.value_of(weight), versions.value_of(average))
        for weight, average in pairs
    ]
    _exchanges[model] = values  # before the first assignment, which may be interrupted
    for each in values:
        versions.assign_to(each.weight, each.mean)
        versions.assign_to(each.average, each.trained)


def _undo(model: KerasModel) -> None:
    """Assigns the values before the exchange, except to variables that have changed since."""
    for each in _exchanges.get(model, ()):
        if _equal(versions.value_of(each.weight), each.mean):
            versions.assign_to(each.weight, each.trained)
        if _equal(versions.value_of(each.average), each.trained):
            versions.assign_to(each.average, each.mean)
    _exchanges.pop(model, None)  # after the last assignment


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return one.tobytes() == other.tobytes()  # also if there are NaNs


def _callback_classes() -> Tuple[type, ...]:
    """Returns Keras' classes of callbacks, of all installed generations of Keras."""
    classes = []
    for find in versions.keras_3, versions.keras_2:
        with contextlib.suppress(ImportError):
            classes.append(find().callbacks.Callback)
    return tuple(classes)


_Callback: Any = type("_Callback", _callback_classes(), {})


class EvaluateAverages(_Callback):
    """Keras callback: evaluates with the averages of the weights, and trains on with the weights.

    Validation in `fit`, and `evaluate(callbacks=[EvaluateAverages()])`, use the averages of a
    `MovingAverageOptimizer` or an `SWAOptimizer`; see `averages`. Afterwards the trained weights
    are back. If an evaluation is interrupted (by an error, or by KeyboardInterrupt), the model
    still has the averages. Then the next `fit` or `evaluate` with this callback, also with another
    object of this class, begins with the trained weights, and `averages` ends with them.

    Example::

        v1_optimizer = legacy_opt.SWAOptimizer(legacy_opt.LazyAdamOptimizer(0.01))
        model = tf.keras.Sequential([tf.keras.layers.Dense(1)])
        model.compile(legacy_opt.compat.to_keras(v1_optimizer), "mse")
        x, y = tf.ones([8, 2]), tf.ones([8, 1])
        callbacks = [legacy_opt.compat.EvaluateAverages()]
        model.fit(x, y, validation_data=(x, y), callbacks=callbacks, verbose=0)

    Args:
      save_averages: whether the model also has the averages while the callbacks after this one run
        at the end of an epoch. ``[EvaluateAverages(save_averages=True), ModelCheckpoint(path)]``
        saves averages. Callbacks before this one get the trained weights.

    Raises:
      TypeError: while training: the model's optimizer has no averages.
    """

    def __init__(self, save_averages: bool = False) -> None:
        super().__init__()
        self._save_averages = save_averages

    def on_train_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        _weights_and_averages(self.model)  # raises an error before the training
        _undo(self.model)

    def on_test_begin(self, logs: Optional[Dict[str, Any]] = None) -> None:
        _exchange(self.model, _weights_and_averages(self.model))

    def on_test_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        _undo(self.model)

    def on_epoch_end(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        if self._save_averages:
            _exchange(self.model, _weights_and_averages(self.model))

    def on_epoch_begin(self, epoch: int, logs: Optional[Dict[str, Any]] = None) -> None:
        _undo(self.model)

    def on_train_end(self, logs: Optional[Dict[str, Any]] = None) -> None:
        _undo(self.model)
