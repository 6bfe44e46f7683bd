"""The list of this package's optimizers, without wrappers; all of them are public.

Other lists of optimizers, such as the names that `optimize_loss` takes, are made from this one.
"""

from legacy_opt.optimizers.adabelief import AdaBeliefOptimizer
from legacy_opt.optimizers.adafactor import AdafactorOptimizer
from legacy_opt.optimizers.adagrad_decay import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from legacy_opt.optimizers.adam_async import AdamAsyncOptimizer
from legacy_opt.optimizers.adam_gs import AdamGSOptimizer, LazyAdamGSOptimizer
from legacy_opt.optimizers.adam_w import AdamWOptimizer, MomentumWOptimizer
from legacy_opt.optimizers.adam_weight_decay import AdamWeightDecayOptimizer
from legacy_opt.optimizers.adamax import AdaMaxOptimizer
from legacy_opt.optimizers.add_sign_power_sign import AddSignOptimizer, PowerSignOptimizer
from legacy_opt.optimizers.cocob import COCOBOptimizer
from legacy_opt.optimizers.conditional_gradient import ConditionalGradientOptimizer
from legacy_opt.optimizers.diffgrad import DiffGradOptimizer
from legacy_opt.optimizers.lamb import LAMBOptimizer
from legacy_opt.optimizers.lars import LARSOptimizer
from legacy_opt.optimizers.lazy_adam import LazyAdamOptimizer
from legacy_opt.optimizers.lion import LionOptimizer
from legacy_opt.optimizers.nadam import NadamOptimizer
from legacy_opt.optimizers.novograd import NovoGradOptimizer
from legacy_opt.optimizers.rectified_adam import RectifiedAdamOptimizer
from legacy_opt.optimizers.reg_adagrad import RegAdagradOptimizer
from legacy_opt.optimizers.shampoo import ShampooOptimizer
from legacy_opt.optimizers.yogi import YogiOptimizer

__all__ = [
    "AdaBeliefOptimizer",
    "AdaMaxOptimizer",
    "AdafactorOptimizer",
    "AdagradDecayOptimizer",
    "AdagradDecayOptimizerV2",
    "AdamAsyncOptimizer",
    "AdamGSOptimizer",
    "AdamWOptimizer",
    "AdamWeightDecayOptimizer",
    "AddSignOptimizer",
    "COCOBOptimizer",
    "ConditionalGradientOptimizer",
    "DiffGradOptimizer",
    "LAMBOptimizer",
    "LARSOptimizer",
    "LazyAdamGSOptimizer",
    "LazyAdamOptimizer",
    "LionOptimizer",
    "MomentumWOptimizer",
    "NadamOptimizer",
    "NovoGradOptimizer",
    "PowerSignOptimizer",
    "RectifiedAdamOptimizer",
    "RegAdagradOptimizer",
    "ShampooOptimizer",
    "YogiOptimizer",
]
