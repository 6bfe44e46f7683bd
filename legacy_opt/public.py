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

from legacy_opt.adagrad_decay import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from legacy_opt.rule import RuleOptimizer
from legacy_opt.slots import RowSlot, ScalarSlot, Slot, TensorSlot
from legacy_opt.update import Addition, Fading, GlobalStepWarning, Update, UseLockingWarning

__all__ = [
    "AdagradDecayOptimizer",
    "AdagradDecayOptimizerV2",
    "Addition",
    "Fading",
    "GlobalStepWarning",
    "RowSlot",
    "RuleOptimizer",
    "ScalarSlot",
    "Slot",
    "TensorSlot",
    "Update",
    "UseLockingWarning",
]
