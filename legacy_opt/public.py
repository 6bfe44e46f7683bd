"""The public names; `import legacy_opt` hands them out."""

try:
    import tensorflow  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "tensorflow":
        raise
    raise ImportError(
        "legacy_opt needs TensorFlow 1.15 or newer, and none is installed. "
        'Install one with: pip install "legacy-opt[tensorflow-cpu]" '
        '(or "legacy-opt[tensorflow]" for GPUs).'
    ) from error

from legacy_opt.adafactor import (
    AdafactorOptimizer,
    adafactor_decay_rate_adam,
    adafactor_decay_rate_pow,
)
from legacy_opt.adagrad_decay import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from legacy_opt.adam_async import AdamAsyncOptimizer
from legacy_opt.adam_gs import AdamGSOptimizer, LazyAdamGSOptimizer
from legacy_opt.adam_w import AdamWOptimizer, MomentumWOptimizer
from legacy_opt.adamax import AdaMaxOptimizer
from legacy_opt.bert import AdamWeightDecayOptimizer
from legacy_opt.decoupled_weight_decay import (
    DecoupledWeightDecayExtension,
    extend_with_decoupled_weight_decay,
)
from legacy_opt.diffgrad import DiffGradOptimizer
from legacy_opt.lamb import LAMBOptimizer
from legacy_opt.lars import LARSOptimizer
from legacy_opt.lazy_adam import LazyAdamOptimizer
from legacy_opt.nadam import NadamOptimizer
from legacy_opt.reg_adagrad import RegAdagradOptimizer
from legacy_opt.rule import RuleOptimizer
from legacy_opt.shampoo import ShampooOptimizer
from legacy_opt.sign_decay import get_cosine_decay_fn, get_linear_decay_fn, get_restart_decay_fn
from legacy_opt.signs import AddSignOptimizer, PowerSignOptimizer
from legacy_opt.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.update import Addition, Fading, GlobalStepWarning, Update, UseLockingWarning

__all__ = [
    "AdaMaxOptimizer",
    "AdafactorOptimizer",
    "AdagradDecayOptimizer",
    "AdagradDecayOptimizerV2",
    "AdamAsyncOptimizer",
    "AdamGSOptimizer",
    "AdamWOptimizer",
    "AdamWeightDecayOptimizer",
    "AddSignOptimizer",
    "Addition",
    "DecoupledWeightDecayExtension",
    "DiffGradOptimizer",
    "Fading",
    "GlobalStepWarning",
    "LAMBOptimizer",
    "LARSOptimizer",
    "LazyAdamGSOptimizer",
    "LazyAdamOptimizer",
    "MomentumWOptimizer",
    "NadamOptimizer",
    "PowerSignOptimizer",
    "RegAdagradOptimizer",
    "RowSlot",
    "RuleOptimizer",
    "ScalarSlot",
    "ShampooOptimizer",
    "Slot",
    "TensorSlot",
    "Update",
    "UseLockingWarning",
    "adafactor_decay_rate_adam",
    "adafactor_decay_rate_pow",
    "extend_with_decoupled_weight_decay",
    "get_cosine_decay_fn",
    "get_linear_decay_fn",
    "get_restart_decay_fn",
]
