"""What was found out about a parameter's tensors, for steps in which they are the same."""

from __future__ import annotations

from typing import Any, Dict, Generic, List, Mapping, NamedTuple, Optional, Tuple, TypeVar

import torch

_T = TypeVar("_T")


class KnownTensors(Generic[_T]):
    """Values that hold for parameters and slots as long as their tensors are the same."""

    def __init__(self) -> None:
        self._found: Dict[int, Tuple[_Tensors, _T]] = {}  # by the id of the parameter

    def __getstate__(self) -> Dict[str, Any]:
        return {"_found": {}}  # a copy has other tensors

    def get(self, parameter: Any, slots: Mapping[str, Any]) -> Optional[_T]:
        """Returns the value for a parameter with a gradient, or None."""
        tensors, value = self._found.get(id(parameter), (None, None))
        return value if tensors is not None and tensors.fit(parameter, slots) else None

    def put(self, parameter: Any, slots: Mapping[str, Any], value: _T) -> None:
        """Keeps a value, which must hold for all dense gradients of the same form."""
        self._found[id(parameter)] = _Tensors.of(parameter, slots), value


class _Tensors(NamedTuple):
    tensors: List[Any]  # the parameter and its slots
    names: List[str]  # of the slots
    forms: List[Any]  # of the tensors and the gradient

    @classmethod
    def of(cls, parameter: Any, slots: Mapping[str, Any]) -> _Tensors:
        tensors = [parameter, *slots.values()]
        return cls(tensors, list(slots), [_form(each) for each in (*tensors, parameter.grad)])

    def fit(self, parameter: Any, slots: Mapping[str, Any]) -> bool:
        """Returns whether the tensors are the same, and the gradient has the same form."""
        gradient = parameter.grad
        if gradient.layout is not torch.strided or gradient.is_neg():
            return False
        try:
            tensors = [parameter, *[slots[name] for name in self.names]]
        except KeyError:
            return False
        is_same = all(one is other for one, other in zip(tensors, self.tensors))
        return is_same and [_form(each) for each in (*tensors, gradient)] == self.forms


def _form(tensor: Any) -> Tuple[Any, ...]:
    return tensor.shape, tensor.stride(), tensor.dtype
