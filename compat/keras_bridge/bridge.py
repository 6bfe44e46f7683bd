"""to_keras: makes a Keras optimizer of a v1 optimizer."""

from __future__ import annotations

import importlib
from typing import Any, Dict, Optional, Union

from legacy_opt import versions
from legacy_opt.core.types import Hyperparameter, KerasOptimizer, KerasSchedule, V1Optimizer

from ..keras_adapters import adapter_of_api


def to_keras(
    optimizer: V1Optimizer,
    learning_rate: Union[Hyperparameter, KerasSchedule, None] = None,
    name: Optional[str] = None,
    api: str = "auto",
    lr_attr: Union[str, bool, None] = None,
    global_step_attr: Optional[str] = None,
    fused: bool = True,
    **keras_arguments: Any,
) -> KerasOptimizer:
    """Returns a Keras optimizer that computes what `optimizer` computes, bit for bit.

    It is a real Keras optimizer, for `compile` and `fit`, custom loops, callbacks, checkpoints and
    distribution strategies. It uses a copy: `optimizer` stays as it is. Slots keep their v1 names.
    The global step is Keras' `iterations`. Numbers that the v1 optimizer reads in each step (in
    `_prepare`) are hyperparameters: ``keras_optimizer.momentum = 0.5``. Optimizers nested in this
    package's wrappers are bridged with them. ``keras_optimizer.apply_gradients(pairs,
    decay_var_list=[...])`` is as in v1 where the optimizer has decoupled weight decay.

    Args:
      optimizer: any `tf.compat.v1.train.Optimizer`: TensorFlow's, this package's or yours.
      learning_rate: a number, callable, or Keras schedule; None for the optimizer's own. For a
        wrapper it is that of the nested optimizer; several nested optimizers keep their own.
      name: the name of the Keras optimizer; None for the optimizer's own.
      api: the kind of Keras optimizer: "optimizer_v2" for Keras 2 (on TensorFlow 2.16 and newer
        that of tf_keras), "keras3", or "auto" for what `tf.keras` is on this machine.
      lr_attr: the attribute that has the optimizer's learning rate, if not `_learning_rate` or
        `_lr`; False if it has no learning rate.
      global_step_attr: the attribute that has the global step, if not `_global_step`.
      fused: whether to use TensorFlow's fused kernels. XLA has none for sparse gradients: pass
        False to train embeddings with jit_compile=True.
      **keras_arguments: arguments of Keras' own optimizers: `clipnorm`, `clipvalue`,
        `global_clipnorm`; in Keras 2 `decay`, `gradient_aggregator`, `gradient_transformers`; in
        Keras 3 `weight_decay`, `use_ema`, `ema_momentum`, `ema_overwrite_frequency`,
        `loss_scale_factor`, `gradient_accumulation_steps`.

    Returns:
      A `tf.keras.optimizers.Optimizer` (for Keras 2 from TensorFlow 2.11 on a
      `tf.keras.optimizers.legacy.Optimizer`).

    Raises:
      ImportError: that Keras is not installed, or does not run on TensorFlow.
      TypeError: `optimizer` is no v1 optimizer, or cannot update resource variables.
      ValueError: the learning rate or the step is in no known attribute, or the optimizer would
        not train as in v1; the message says why.
    """
    if hasattr(optimizer, "new_keras_optimizer"):
        options = (learning_rate, name, lr_attr, global_step_attr, keras_arguments or None)
        return _out_of_v1(optimizer, api, any(option is not None for option in options))
    return bridge_class(api)(
        optimizer,
        learning_rate=learning_rate,
        name=name,
        lr_attr=lr_attr,
        global_step_attr=global_step_attr,
        fused=fused,
        **keras_arguments,
    )


def _out_of_v1(optimizer, api, changed):
    """Returns a new Keras optimizer like the one that `to_v1` was called with."""
    made = optimizer.new_keras_optimizer()
    kind = versions.kind_of_keras_optimizer(made)
    if api not in ("auto", kind) or changed:
        raise ValueError(
            f"{optimizer.get_name()} was made by to_v1 from a Keras optimizer (api={kind!r}), "
            "and to_keras returns that. Pass no other api, and set other arguments on the result."
        )
    return made


def bridge_class(api):
    """Returns the Keras optimizer class of an `api`, and imports its Keras.

    Raises:
      ImportError: that Keras is not installed, or does not run on TensorFlow.
      ValueError: there is no such `api`.
    """
    home = f".keras{adapter_of_api(api).generation}.optimizer"
    return importlib.import_module(home, __package__).BridgedOptimizer


def custom_objects(api: str = "auto") -> Dict[str, type]:
    """Returns the classes that Keras needs to load a model that was saved with a bridged optimizer.

    ``keras.models.load_model(path, custom_objects=legacy_opt.compat.custom_objects())`` works in a
    process that has not made such an optimizer yet. Your own v1 classes must be registered with
    `register_optimizer` as well.

    Args:
      api: the kind of Keras optimizer, as for `to_keras`.

    Returns:
      A dict from names to classes.

    Raises:
      ImportError: that Keras is not installed.
    """
    cls = bridge_class(api)
    return {cls.__name__: cls, f"{versions.KERAS_PACKAGE}>{cls.__name__}": cls}
