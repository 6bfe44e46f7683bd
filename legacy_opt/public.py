"""Imports all public names. `legacy_opt` imports this module when a public name is first used."""

try:
    import tensorflow as _tensorflow  # noqa: F401
except ModuleNotFoundError as _error:
    if _error.name != "tensorflow":
        raise
    raise ImportError(
        "legacy_opt needs TensorFlow 1.15 or newer, but TensorFlow is not installed. "
        "Install it with: pip install tensorflow-cpu (for GPUs, and on macOS: tensorflow)."
    ) from _error

from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.core.update import Addition, Fading, NewValue, Update
from legacy_opt.core.user_warnings import (
    DifferenceFromOriginalWarning,
    GlobalStepWarning,
    RepartitionWarning,
    UseLockingWarning,
)
from legacy_opt.optimizers import catalogue as _catalogue
from legacy_opt.optimizers.adafactor import adafactor_decay_rate_adam, adafactor_decay_rate_pow
from legacy_opt.optimizers.catalogue import *  # noqa: F403
from legacy_opt.optimizers.decoupled_weight_decay import (
    DecoupledWeightDecayExtension,
    extend_with_decoupled_weight_decay,
)
from legacy_opt.optimizers.sign_decay import (
    get_cosine_decay_fn,
    get_linear_decay_fn,
    get_restart_decay_fn,
)
from legacy_opt.training.adaptive_clipping import adaptive_clipping_fn
from legacy_opt.training.contrib_layers import OPTIMIZER_SUMMARIES, optimize_loss
from legacy_opt.training.contrib_training import create_train_op
from legacy_opt.training.cyclical_learning_rates import (
    CyclicalLearningRate,
    ExponentialCyclicalLearningRate,
    Triangular2CyclicalLearningRate,
    TriangularCyclicalLearningRate,
)
from legacy_opt.training.gradient_functions import (
    add_gradients_summaries,
    clip_gradient_norms,
    clip_gradient_norms_fn,
    multiply_gradients,
)
from legacy_opt.training.hooks import ProgressBarHook, SlotSummaryHook
from legacy_opt.training.optimizers_by_name import OPTIMIZER_CLS_NAMES
from legacy_opt.training.scipy_interface import ExternalOptimizerInterface, ScipyOptimizerInterface
from legacy_opt.wrappers.base import OptimizerWrapper
from legacy_opt.wrappers.gradient_accumulation import GradientAccumulationOptimizer
from legacy_opt.wrappers.gradient_clipping import (
    ClipByGlobalNormOptimizer,
    ClipByNormOptimizer,
    ClipByValueOptimizer,
    clip_gradients_by_norm,
)
from legacy_opt.wrappers.lookahead import LookaheadOptimizer
from legacy_opt.wrappers.loss_scale import (
    ExponentialUpdateLossScaleManager,
    FixedLossScaleManager,
    LossScaleManager,
    LossScaleOptimizer,
)
from legacy_opt.wrappers.moving_average import MovingAverageOptimizer
from legacy_opt.wrappers.multi_optimizer import MultiOptimizer
from legacy_opt.wrappers.multitask import MultitaskOptimizerWrapper, clip_gradients_by_global_norm
from legacy_opt.wrappers.swa import SWAOptimizer
from legacy_opt.wrappers.variable_clipping import VariableClippingOptimizer

__all__ = [
    "Addition",
    "ClipByGlobalNormOptimizer",
    "ClipByNormOptimizer",
    "ClipByValueOptimizer",
    "CyclicalLearningRate",
    "DecoupledWeightDecayExtension",
    "DifferenceFromOriginalWarning",
    "ExponentialCyclicalLearningRate",
    "ExponentialUpdateLossScaleManager",
    "ExternalOptimizerInterface",
    "Fading",
    "FixedLossScaleManager",
    "GlobalStepWarning",
    "GradientAccumulationOptimizer",
    "LossScaleManager",
    "LossScaleOptimizer",
    "LookaheadOptimizer",
    "MovingAverageOptimizer",
    "MultiOptimizer",
    "MultitaskOptimizerWrapper",
    "NewValue",
    "OPTIMIZER_CLS_NAMES",
    "OPTIMIZER_SUMMARIES",
    "OptimizerWrapper",
    "ProgressBarHook",
    "RepartitionWarning",
    "RowSlot",
    "RuleOptimizer",
    "SWAOptimizer",
    "ScalarSlot",
    "ScipyOptimizerInterface",
    "Slot",
    "SlotSummaryHook",
    "TensorSlot",
    "Triangular2CyclicalLearningRate",
    "TriangularCyclicalLearningRate",
    "Update",
    "UseLockingWarning",
    "VariableClippingOptimizer",
    "adafactor_decay_rate_adam",
    "adafactor_decay_rate_pow",
    "adaptive_clipping_fn",
    "add_gradients_summaries",
    "clip_gradient_norms",
    "clip_gradient_norms_fn",
    "clip_gradients_by_global_norm",
    "clip_gradients_by_norm",
    "create_train_op",
    "extend_with_decoupled_weight_decay",
    "get_cosine_decay_fn",
    "get_linear_decay_fn",
    "get_restart_decay_fn",
    "multiply_gradients",
    "optimize_loss",
]
__all__ += _catalogue.__all__
