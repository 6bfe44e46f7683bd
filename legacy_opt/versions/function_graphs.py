"""Functions for the graphs of functions: of `tf.function`, of branches and of loops."""

from __future__ import annotations

from typing import Dict

import tensorflow as tf

from legacy_opt.versions.modes import is_symbolic


def captures(graph: tf.Graph) -> Dict[tf.Operation, tf.Tensor]:
    """Returns the symbolic tensors that a function's graph captures.

    The result is a dict from the operations that are inputs of `graph` to the captured tensors.
    """
    pairs = zip(getattr(graph, "internal_captures", ()), getattr(graph, "external_captures", ()))
    return {inside.op: outside for inside, outside in pairs if is_symbolic(outside)}
