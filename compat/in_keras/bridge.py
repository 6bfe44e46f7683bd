"""to_keras: makes a Keras optimizer from a v1 optimizer (a `tf.compat.v1.train.Optimizer`)."""

from __future__ import annotations

import importlib
from typing import Any, Dict, Optional, Union

from legacy_opt import CyclicalLearningRate, versions
from legacy_opt.core.types import Hyperparameter, KerasOptimizer, KerasSchedule, V1Optimizer

from .keras_adapters import KERAS_2, adapter_of, adapter_of_api
from .keras_bridge.protocol import GlobalStep
from .v1_optimizers import schedules

_HOMES = {  # {api: the module of its bridged optimizers}
    "optimizer_v2": ".keras_bridge.keras2.optimizer",
    "keras3": ".keras_bridge.keras3.optimizer",
}
_HOME_OF_OPTIMIZER_V2 = ".optimizer_v2.optimizer"


def to_keras(
    optimizer: Union[V1Optimizer, CyclicalLearningRate],
    learning_rate: Union[Hyperparameter, KerasSchedule, None] = None,
    name: Optional[str] = None,
    api: str = "auto",
    lr_attr: Union[str, bool, None] = None,
    global_step_attr: Optional[str] = None,
    fused: bool = True,
    global_step: GlobalStep = "iterations",
    **keras_arguments: Any,
) -> KerasOptimizer:
    """Returns a Keras optimizer that computes what `optimizer` computes, bit for bit.

    The result is a real Keras optimizer, for `compile` and `fit`, custom loops, callbacks,
    checkpoints and distribution strategies. It trains with a copy of `optimizer`, so `optimizer`
    itself does not change. Slots keep their v1 names. Keras' `iterations` replaces the global step.
    Most hyperparameters that the v1 optimizer reads in each training step (in `_prepare`) can be
    set: ``keras_optimizer.momentum = 0.5``. A wrapper is an optimizer of this package that contains
    other optimizers, such as MultiOptimizer. If `optimizer` is a wrapper, the nested optimizers are
    converted, too. If `optimizer` has decoupled weight decay,
    ``keras_optimizer.apply_gradients(pairs, decay_var_list=[...])`` limits the weight decay to the
    variables in the list, as in v1.

    Args:
      optimizer: a `tf.compat.v1.train.Optimizer` of TensorFlow, of this package or of your own; or
        an OptimizerV2 of Keras 2, of your own or of another package, for Keras 3; or a
        `CyclicalLearningRate`, which becomes a `LearningRateSchedule`.
      learning_rate: a number, callable, or Keras schedule; None keeps the learning rate of
        `optimizer`. If `optimizer` is a wrapper, its nested optimizer gets this learning rate. If
        several optimizers are nested, the argument must be None, because each nested optimizer
        keeps its own learning rate.
      name: the name of the Keras optimizer; None takes the name of `optimizer`.
      api: the kind of Keras optimizer: "optimizer_v2" for Keras 2 (the package tf_keras on
        TensorFlow 2.16 and newer), "keras3" for Keras 3, or "auto" for the Keras version of the
        installed `tf.keras`.
      lr_attr: the name of the attribute of `optimizer` with the learning rate, if the name is not
        `_learning_rate`, `_lr`, `learning_rate` or `lr`; False if `optimizer` has no learning rate.
      global_step_attr: the name of the attribute of `optimizer` with the global step, if the name
        is not `_global_step`.
      fused: whether to use TensorFlow's fused kernels. XLA lacks the fused kernels for sparse
        gradients, so pass False to train embeddings with jit_compile=True.
      global_step: in a TF1 graph, the step variable that the optimizer increments, like the
        argument of `minimize`. It becomes Keras' `iterations`. None means that the optimizer
        increments no global step, and that `iterations` counts beside it. "iterations" means that
        nothing else is a global step: a hyperparameter that is computed from an integer variable is
        an error.
      **keras_arguments: arguments of Keras' own optimizers: `clipnorm`, `clipvalue`,
        `global_clipnorm`; in Keras 2 `decay`, `gradient_aggregator`, `gradient_transformers`; in
        Keras 3 `weight_decay`, `use_ema`, `ema_momentum`, `ema_overwrite_frequency`,
        `loss_scale_factor`, `gradient_accumulation_steps`.

    Returns:
      A `tf.keras.optimizers.Optimizer`. For Keras 2, it is a `tf.keras.optimizers.legacy.Optimizer`
      on TensorFlow 2.11 to 2.15, and a `tf_keras.optimizers.legacy.Optimizer` on newer versions.

    Raises:
      ImportError: the required Keras is not installed, or does not run on this TensorFlow.
      TypeError: `optimizer` is not a v1 optimizer, or cannot update resource variables; or
        `global_step` is not an integer variable.
      ValueError: the learning rate or the global step is in an attribute with an unknown name; or
        `global_step` is given in eager execution; or
        the result would train differently from `optimizer`, for example because `optimizer` has
        trained already, and its state would be missing. The message says why.
    """
    if isinstance(optimizer, CyclicalLearningRate):
        return schedules.cyclical(optimizer, adapter_of_api(api).keras)
    has_v1_options = not fused or not isinstance(global_step, str)
    if hasattr(optimizer, "new_keras_optimizer"):  # made by to_v1
        keras_optimizer = optimizer.new_keras_optimizer()
        own_api = adapter_of(keras_optimizer).api
        options = (learning_rate, name, lr_attr, global_step_attr)
        has_options = bool(keras_arguments) or any(option is not None for option in options)
        if api not in ("auto", own_api) or has_v1_options or has_options:
            raise ValueError(
                f"{optimizer.get_name()} was made by to_v1 from a Keras optimizer "
                f"(api={own_api!r}), and to_keras returns this kind of optimizer with the same "
                "settings. Do not pass another api, and set options on the result instead of "
                "passing them."
            )
        return keras_optimizer
    name_of_class = type(optimizer).__name__
    KERAS_2.refuse_new(
        type(optimizer),
        f". Keras 3 has the same ones, keras.optimizers.{name_of_class}. For the OptimizerV2 of "
        "that name, pass",
    )
    to_keras_3 = adapter_of_api(api).api == "keras3"
    is_class = isinstance(optimizer, type)  # for a class, the v1 bridge raises an error
    if to_keras_3 and not is_class and versions.api_of(optimizer) == "optimizer_v2":
        options = (learning_rate, lr_attr, global_step_attr)
        if has_v1_options or any(option is not None for option in options):
            raise ValueError(
                f"{name_of_class} is an OptimizerV2, for which to_keras takes only api, "
                "name and arguments of Keras 3. Set other options on the OptimizerV2."
            )
        home = importlib.import_module(_HOME_OF_OPTIMIZER_V2, __package__)
        return home.OptimizerV2InKeras3(optimizer, name=name, **keras_arguments)
    return bridge_class(api)(
        optimizer,
        learning_rate=learning_rate,
        name=name,
        lr_attr=lr_attr,
        global_step_attr=global_step_attr,
        fused=fused,
        global_step=global_step,
        **keras_arguments,
    )


def bridge_class(api: str) -> Any:
    """Imports Keras 2 or Keras 3, and returns the class of optimizers that `to_keras` makes."""
    home = _HOMES[adapter_of_api(api).api]
    return importlib.import_module(home, __package__).BridgedOptimizer


def custom_objects(api: str = "auto") -> Dict[str, type]:
    """Returns the classes that Keras needs to load a model with an optimizer made by `to_keras`.

    ``keras.models.load_model(path, custom_objects=legacy_opt.compat.custom_objects())`` works even
    if the process has not called `to_keras` yet. Your own v1 classes must also be registered with
    `register_optimizer`.

    Args:
      api: the kind of Keras optimizer; see `to_keras`.

    Returns:
      A dict from names to classes.

    Raises:
      ImportError: the required Keras is not installed.
    """
    classes = [bridge_class(api), *schedules.cyclical_classes(adapter_of_api(api).keras)]
    if adapter_of_api(api).api == "keras3":
        home = importlib.import_module(_HOME_OF_OPTIMIZER_V2, __package__)
        classes.append(home.OptimizerV2InKeras3)
    by_name = {cls.__name__: cls for cls in classes}
    registered = {f"{versions.KERAS_PACKAGE}>{name}": cls for name, cls in by_name.items()}
    return {**by_name, **registered}
