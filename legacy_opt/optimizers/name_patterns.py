"""The base class of optimizers that compare the names of variables with patterns."""

from __future__ import annotations

import contextlib
import re
from typing import Any, ClassVar, Sequence, Tuple

from legacy_opt.core.rule_optimizer import RuleOptimizer
from legacy_opt.core.shortened import quoted
from legacy_opt.core.types import Variable
from legacy_opt.core.user_warnings import warn

# The patterns in BERT's list: two spellings of one name, of which a model has at most one.
_OF_BERT = {"LayerNorm", "layer_norm", "bias"}
# A subclass that overrides one of these methods may use the patterns in any way.
_HOOKS = ("_do_use_weight_decay", "_do_layer_adaptation", "_get_variable_name")
_HOOKS += ("hyper_for", "compute_lr")


class PatternsOptimizer(RuleOptimizer):
    """Warns in its first step of patterns that match none of the variables, such as "bais"."""

    _pattern_attributes: ClassVar[Tuple[str, ...]]  # the names of attributes that are patterns
    _matches: Any = staticmethod(re.search)
    _has_checked_patterns = False

    def _name_to_match(self, variable: Variable) -> str:
        return self.variable_name(variable)

    def _prepare(self) -> None:
        pairs = self._rule_step.pairs
        if pairs and not self._has_checked_patterns:
            self._has_checked_patterns = True
            hooks = [getattr(self, each, None) for each in _HOOKS]
            modules = {str(getattr(each, "__module__", "")) for each in hooks if each is not None}
            if all(each.startswith("legacy_opt.") for each in modules):
                with contextlib.suppress(TypeError, re.error):  # invalid patterns may be unused
                    self._check_patterns([variable for _, variable in pairs])
        super()._prepare()

    def _check_patterns(self, variables: Sequence[Variable]) -> None:
        names = sorted(map(self._name_to_match, variables))
        # {patterns: attribute}; of attributes with equal patterns, the last one.
        attributes = {tuple(getattr(self, each) or ()): each for each in self._pattern_attributes}
        for patterns, attribute in attributes.items():
            unmatched = [p for p in patterns if not any(self._matches(p, name) for name in names)]
            if len(unmatched) < len(patterns):  # then the rest of BERT's list need not match
                unmatched = [each for each in unmatched if each not in _OF_BERT]
            if unmatched:
                text = f"{attribute.lstrip('_')} has {quoted(unmatched)}, which matches no variable"
                warn(f"{type(self).__name__}: {text} of this step: {quoted(names)}.", UserWarning)
