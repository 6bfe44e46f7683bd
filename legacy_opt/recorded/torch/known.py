"""What was found out about tensors, for the steps in which they are the same."""

from __future__ import annotations

import operator
from typing import Any, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar

import torch

_T = TypeVar("_T")


class KnownTensors(Generic[_T]):
    """Values that hold for parameters as long as they have the same slots and such a gradient."""

    def __init__(self) -> None:
        # By the id of the parameter. The first list has the names and tensors.
        self._found: Dict[int, Tuple[List[Any], List[Any], _T]] = {}

    def __getstate__(self) -> Dict[str, Any]:
        return {"_found": {}}  # a copy has other tensors

    def put(self, parameter: Any, slots: Mapping[str, Any], value: _T) -> None:
        """Keeps a value, which must hold for all dense gradients of the same form."""
        tensors = [parameter, *slots.values()]
        found = [*slots, *tensors], _forms(parameter.grad, *tensors), value
        self._found[id(parameter)] = found

    def get(self, parameter: Any, slots: Mapping[str, Any]) -> Optional[_T]:
        """Returns the value for a parameter with a gradient, or None."""
        gradient, tensors = parameter.grad, [parameter, *slots.values()]
        known, forms, value = self._found.get(id(parameter), ([], [], None))
        parts = [*slots, *tensors]
        if gradient.layout is not torch.strided or gradient.is_neg() or len(known) != len(parts):
            return None
        is_same = all(map(operator.is_, known, parts)) and forms == _forms(gradient, *tensors)
        return value if is_same else None


def _forms(*tensors: Any) -> List[Any]:
    return [(each.shape, each.stride(), each.dtype) for each in tensors]
