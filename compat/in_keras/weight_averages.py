"""Evaluates Keras models with the averages of their weights, and trains on with the weights.

The averages are slots of an optimizer that `to_keras` made. While a model has the averages, the
slots have the trained weights, so that files of the whole model contain both.
"""

from __future__ import annotations

import contextlib
import weakref
from typing import Any, Iterator, List, Optional, Tuple

from legacy_opt import versions
from legacy_opt.core.types import KerasModel, KerasVariable, Variable
from legacy_opt.wrappers.averages import AveragingOptimizer

from .v1_optimizers import nesting

# {model: a list of (weight, average, value of the weight, value of the average), the values before
# the exchange}. Any later use undoes what an interrupted evaluation has left.
_exchanges: Any = weakref.WeakKeyDictionary()
_in_scope: Any = weakref.WeakSet()  # models with averages until the end of an `averages`


@contextlib.contextmanager
def averages(model: KerasModel) -> Iterator[None]:
    """Scope in which the weights of a model are their averages.

    In the scope, evaluate, export or save the model, but do not train. At its end, also after an
    error, the trained weights are back. Weights that were assigned in the scope keep their new
    values, unless these equal the averages. Weights without an average, such as those of batch
    normalization, stay as they are. See `legacy-opt docs wrappers` for examples.

    Args:
      model: a compiled Keras model whose optimizer `to_keras` made from a `MovingAverageOptimizer`
        or an `SWAOptimizer`, or from wrappers that contain one.

    Raises:
      TypeError: the model's optimizer computes no averages.
      ValueError: there are no averages yet.
    """
    pairs = _weights_and_averages(model)
    if model in _in_scope:
        yield
        return
    try:
        _exchange(model, pairs)
        _in_scope.add(model)
        yield
    finally:
        _in_scope.discard(model)
        _undo(model)


def _weights_and_averages(model: KerasModel) -> List[Tuple[KerasVariable, Variable]]:
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)  # if it scales losses
    driver = getattr(optimizer, "_v1", None)
    nested = [] if driver is None else nesting.nested_optimizers(driver.optimizer)
    optimizers = [x.optimizer for x in nested if isinstance(x.optimizer, AveragingOptimizer)]
    if not optimizers:
        raise TypeError(
            f"The optimizer of the model, {optimizer!r}, has no averages. Compile the model with "
            "to_keras(MovingAverageOptimizer(…)) or to_keras(SWAOptimizer(…))."
        )
    pairs = []
    for weight in model.weights:
        found = [each.average(versions.tf_variable(weight)) for each in optimizers]
        pairs += [(weight, average) for average in found if average is not None][:1]
    if not pairs:
        raise ValueError(
            "The model has no averages yet: train it, or, before you load them from a file, call "
            "model.optimizer.build(model.trainable_variables)."
        )
    return pairs


def _exchange(model: KerasModel, pairs: List[Tuple[KerasVariable, Variable]]) -> None:
    if model in _in_scope:
        return
    _undo(model)  # an interrupted evaluation may have left the averages in the weights
    values = [(*pair, *map(versions.value_of, pair)) for pair in pairs]
    _exchanges[model] = values  # before the first assignment, which may be interrupted
    for weight, average, trained, mean in values:
        versions.assign_to(weight, mean)
        versions.assign_to(average, trained)


def _undo(model: KerasModel) -> None:
    """Assigns the values before the exchange, except to variables that have changed since."""
    if model in _in_scope:
        return
    for weight, average, trained, mean in _exchanges.get(model, ()):
        for variable, exchanged, before in (weight, mean, trained), (average, trained, mean):
            if versions.value_of(variable).tobytes() == exchanged.tobytes():
                versions.assign_to(variable, before)
    _exchanges.pop(model, None)  # after the last assignment


def _callback_classes() -> Iterator[type]:
    """Yields the Callback classes of Keras 3 and Keras 2, as far as these are installed."""
    for find in versions.keras_3, versions.keras_2:
        with contextlib.suppress(ImportError):
            yield find().callbacks.Callback


_Callback: Any = type("_Callback", tuple(_callback_classes()), {})


class EvaluateAverages(_Callback):
    """Keras callback: evaluates with the averages of the weights, and trains on with the weights.

    Validation in `fit`, and ``evaluate(callbacks=[EvaluateAverages()])``, use the averages, like
    `averages`. If an error or KeyboardInterrupt ends an evaluation, the model has the averages
    until the next `averages`, or `fit` or `evaluate` with this callback, begins.

    Example::

        v1_optimizer = legacy_opt.SWAOptimizer(legacy_opt.LazyAdamOptimizer(0.01))
        model = tf.keras.Sequential([tf.keras.Input([2]), tf.keras.layers.Dense(1)])
        model.compile(legacy_opt.compat.to_keras(v1_optimizer), "mse")
        data = tf.ones([8, 2]), tf.ones([8, 1])
        callbacks = [legacy_opt.compat.EvaluateAverages()]
        model.fit(*data, validation_data=data, callbacks=callbacks, verbose=0)

    Args:
      save_averages: whether the model also has the averages at the end of an epoch, while the
        callbacks after this one run: ``[EvaluateAverages(save_averages=True), ModelCheckpoint(…)]``
        saves averages. Callbacks before this one get the trained weights.

    Raises:
      TypeError, ValueError: in an evaluation, as in `averages`.
    """

    def __init__(self, save_averages: bool = False) -> None:
        super().__init__()
        self._save_averages = save_averages

    def on_test_begin(self, logs: Optional[Any] = None) -> None:
        _exchange(self.model, _weights_and_averages(self.model))

    def on_test_end(self, *epoch_and_logs: Any, **named: Any) -> None:
        _undo(self.model)

    on_epoch_begin = on_train_end = on_test_end

    def on_epoch_end(self, epoch: int, logs: Optional[Any] = None) -> None:
        if self._save_averages:
            self.on_test_begin()
