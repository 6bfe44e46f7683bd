"""The recurrent networks and cells of `tf.contrib.rnn` that `tf.compat.v1.nn` lacks.

From TensorFlow 2.16 on, the cells need the package tf-keras, as those of TensorFlow do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, List, Optional, Tuple

import tensorflow as tf

from legacy_opt.core.nearest_names import did_you_mean

if TYPE_CHECKING:
    from .rnn_cells import CoupledInputForgetGateLSTMCell, LayerNormBasicLSTMCell, NASCell
    from .rnn_fused import LSTMBlockCell, LSTMBlockFusedCell, TimeReversedFusedRNN
    from .rnn_wrappers import (
        AttentionCellWrapper,
        EmbeddingWrapper,
        HighwayWrapper,
        InputProjectionWrapper,
        OutputProjectionWrapper,
    )

__all__ = [
    "AttentionCellWrapper",
    "CoupledInputForgetGateLSTMCell",
    "EmbeddingWrapper",
    "HighwayWrapper",
    "InputProjectionWrapper",
    "LSTMBlockCell",
    "LSTMBlockFusedCell",
    "LayerNormBasicLSTMCell",
    "NASCell",
    "OutputProjectionWrapper",
    "TimeReversedFusedRNN",
    "stack_bidirectional_dynamic_rnn",
    "stack_bidirectional_rnn",
]

v1 = tf.compat.v1


def __getattr__(name: str) -> Any:
    if name in __all__:  # a cell: it is imported on first use, because its base may be missing
        from . import rnn_cells, rnn_fused, rnn_wrappers

        home = next(each for each in (rnn_cells, rnn_fused, rnn_wrappers) if hasattr(each, name))
        return getattr(home, name)
    hint = did_you_mean(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")


def stack_bidirectional_rnn(
    cells_fw: List[Any],
    cells_bw: List[Any],
    inputs: List[Any],
    initial_states_fw: Optional[List[Any]] = None,
    initial_states_bw: Optional[List[Any]] = None,
    dtype: Optional[Any] = None,
    sequence_length: Optional[Any] = None,
    scope: Optional[Any] = None,
) -> Tuple[List[tf.Tensor], Tuple[Any, ...], Tuple[Any, ...]]:
    """Runs layers of `static_bidirectional_rnn`, each over the outputs of the layer below.

    The lists of cells and of start states have an element for each layer, in both directions. The
    other arguments are those of `static_bidirectional_rnn`.

    Returns:
      The outputs, whose last axis contains both directions, and the last states of all layers in
      each direction.

    Raises:
      ValueError: cells or states are no lists, or are not as many in both directions.
    """

    def layer(cells, below, states, layer_scope):
        return v1.nn.static_bidirectional_rnn(
            *(*cells, below, *states, dtype, sequence_length, layer_scope)
        )

    states = initial_states_fw, initial_states_bw
    return _stacked(layer, (cells_fw, cells_bw), inputs, states, scope)


def stack_bidirectional_dynamic_rnn(
    cells_fw: List[Any],
    cells_bw: List[Any],
    inputs: Any,
    initial_states_fw: Optional[List[Any]] = None,
    initial_states_bw: Optional[List[Any]] = None,
    dtype: Optional[Any] = None,
    sequence_length: Optional[Any] = None,
    parallel_iterations: Optional[int] = None,
    time_major: bool = False,
    scope: Optional[Any] = None,
    swap_memory: bool = False,
) -> Tuple[tf.Tensor, Tuple[Any, ...], Tuple[Any, ...]]:
    """Runs layers of `bidirectional_dynamic_rnn`; see `stack_bidirectional_rnn`."""

    def layer(cells, below, states, _):
        outputs, (state_fw, state_bw) = v1.nn.bidirectional_dynamic_rnn(
            *(*cells, below, sequence_length, *states, dtype),
            parallel_iterations=parallel_iterations,
            swap_memory=swap_memory,
            time_major=time_major,
        )
        return tf.concat(outputs, 2), state_fw, state_bw

    states = initial_states_fw, initial_states_bw
    return _stacked(layer, (cells_fw, cells_bw), inputs, states, scope)


def _stacked(layer, cells, outputs, first_states, scope):
    """Calls `layer` with the cells and the states of each layer, in the scope of the layer."""
    for way, of_way, states in zip(("fw", "bw"), cells, first_states):
        if not of_way:
            raise ValueError(f"Must specify at least one {way} cell for BidirectionalRNN.")
        if not isinstance(of_way, list):
            raise ValueError(f"cells_{way} must be a list of RNNCells (one per layer).")
        if states is not None and not (isinstance(states, list) and len(states) == len(of_way)):
            raise ValueError(
                f"initial_states_{way} must be a list of state tensors (one per layer)."
            )
    if len(cells[0]) != len(cells[1]):
        raise ValueError("Forward and Backward cells must have the same depth.")
    starts = [states or [None] * len(cells[0]) for states in first_states]
    last_states = []
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (of_layer, start) in enumerate(zip(zip(*cells), zip(*starts))):
            with v1.variable_scope(f"cell_{number}") as layer_scope:
                outputs, *last = layer(of_layer, outputs, start, layer_scope)
            last_states.append(last)
    last_fw, last_bw = zip(*last_states)
    return outputs, last_fw, last_bw
