"""The recurrent network and the cells of `tf.contrib.rnn` that `tf.compat.v1.nn` lacks.

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
]

v1 = tf.compat.v1


def __getattr__(name: str) -> Any:
    if name in __all__:  # a cell: it is imported on first use, because its base may be missing
        from . import rnn_cells, rnn_fused, rnn_wrappers

        home = next(each for each in (rnn_cells, rnn_fused, rnn_wrappers) if hasattr(each, name))
        return getattr(home, name)
    hint = did_you_mean(name, __all__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}.{hint}")


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
    """Runs layers of `bidirectional_dynamic_rnn`, each over the outputs of the layer below.

    The lists of cells and of start states have an element for each layer, in both directions. The
    other arguments are those of `bidirectional_dynamic_rnn`.

    Returns:
      The outputs, whose last axis contains both directions, and the last states of all layers in
      each direction.
    """
    count = len(cells_fw)
    starts = [initial_states_fw, initial_states_bw]
    lists = [cells_fw, cells_bw, *(each for each in starts if each is not None)]
    are_lists = all(isinstance(each, list) and len(each) == count for each in lists)
    if not count or not are_lists:
        raise ValueError(f"cells and states must be lists with an item for each layer: {lists!r}")
    states_fw, states_bw = [each or [None] * count for each in starts]
    outputs = inputs
    last_states = []
    layers = zip(cells_fw, cells_bw, states_fw, states_bw)
    with v1.variable_scope(scope or "stack_bidirectional_rnn"):
        for number, (cell_fw, cell_bw, state_fw, state_bw) in enumerate(layers):
            with v1.variable_scope(f"cell_{number}"):
                both, states = v1.nn.bidirectional_dynamic_rnn(
                    cell_fw,
                    cell_bw,
                    outputs,
                    sequence_length=sequence_length,
                    initial_state_fw=state_fw,
                    initial_state_bw=state_bw,
                    dtype=dtype,
                    parallel_iterations=parallel_iterations,
                    swap_memory=swap_memory,
                    time_major=time_major,
                )
            outputs = tf.concat(both, 2)
            last_states.append(states)
    last_fw, last_bw = zip(*last_states)
    return outputs, last_fw, last_bw
