"""V1InKeras: the common base of the optimizers that `to_keras` makes for Keras 2 and Keras 3."""

from __future__ import annotations

import contextlib
from typing import Any, Collection, Dict, Optional

from legacy_opt import versions
from legacy_opt.core.types import KerasOptimizer, V1Optimizer, Variable

from ..keras_adapters.base import KerasAdapter
from ..v1_optimizers.study import Options, study
from . import configuration
from .driver import V1Driver
from .protocol import GlobalStep, StateOwner
from .refusals import check_global_step, check_has_weight_decay


class V1InKeras(StateOwner):
    """Mixin for a Keras optimizer that updates variables by a copy of a v1 optimizer.

    For the constructor's arguments see `legacy_opt.compat.to_keras`, and `Options` for arguments
    that only `from_config` passes. The class after this one must be a Keras optimizer. Subclasses
    define `_init_keras`, which checks arguments and calls Keras' own constructor, and
    `_add_hyperparameters`, which adds the v1 optimizer's hyperparameters to those of Keras.
    """

    _adapter: KerasAdapter
    _v1: V1Driver = None  # pyright: ignore[reportAssignmentType]  # None in Keras' constructor
    _takes_ref_step = False  # whether Keras can increment a ref variable

    def __init__(
        self,
        optimizer: V1Optimizer,
        name: Optional[str] = None,
        global_step: GlobalStep = "iterations",
        **arguments: Any,
    ):
        check_global_step(global_step, self._takes_ref_step)
        options = {key: arguments.pop(key) for key in Options._fields if key in arguments}
        settings = study(optimizer, self, self._adapter.keras, Options(**options))
        self._init_keras(optimizer, name, global_step, settings, arguments)
        driver = V1Driver(optimizer, settings, self, global_step)
        vars(self)["_v1"] = driver  # Keras would track an assignment
        self._add_hyperparameters()

    def __repr__(self):
        if self._v1 is None:
            return super().__repr__()
        name = type(self._v1.optimizer).__name__
        title, api = self._adapter.title, self._adapter.api
        return f"<{name}, bridged to {title} by to_keras(…, api={api!r})>"

    @classmethod
    def from_config(
        cls, config_: configuration.Configuration, custom_objects: Optional[Dict[str, Any]] = None
    ) -> KerasOptimizer:
        """Makes the optimizer that `get_config` described."""
        made = configuration.with_objects(config_, cls._adapter.keras, custom_objects)
        return super().from_config(made, custom_objects=custom_objects)

    def _decaying_only(self, decay_var_list: Optional[Collection[Variable]]):
        """Restricts the optimizer's decoupled weight decay to some variables within this scope.

        Raises an error without decoupled weight decay or for an empty list. None restricts nothing.
        """
        if decay_var_list is None:
            return contextlib.ExitStack()
        v1_optimizer = self._v1.optimizer
        check_has_weight_decay(v1_optimizer)
        # `decaying_only` raises an error for other types.
        if isinstance(decay_var_list, (list, tuple, set, frozenset)):
            decay_var_list = [versions.tf_variable(variable) for variable in decay_var_list]
        return v1_optimizer.decaying_only(decay_var_list)
