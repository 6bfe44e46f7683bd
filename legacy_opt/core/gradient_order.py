"""Makes writes to variables wait until all gradients of a training step are computed.

A step that reads its batch from a dataset fails at the end of the dataset. Writes that depend on no
gradient, such as the decay of a slot, would run nevertheless, and make a part of a step.
"""

from __future__ import annotations

import contextlib
import re
from typing import Iterable, Iterator, List, Optional

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.types import Gradient, Operation, Tensor
from legacy_opt.core.variable_access import after

# Operations that get a variable, but change none. (Enter begins a loop, so it cannot wait for
# gradients that are computed inside the loop.)
_NO_WRITES = re.compile("Enter|Gather|Read|VarHandle|VarIsInitialized|VariableShape")
# TensorFlow rewrites chains of these operations, which changes the last bits, but only if nothing
# else waits for an operation in the chain. Therefore writes wait for the inputs of such chains.
_REWRITTEN = re.compile("AddN|Add(V2)?|Cast|Div|Identity|Mul|RealDiv|Reshape|Sub")


@contextlib.contextmanager
def writes_after(grads: Iterable[Optional[Gradient]]) -> Iterator[None]:
    """Scope whose writes to variables run after all gradients are computed.

    Only the writes wait. If everything else waited as well, TensorFlow would round differently,
    because it does not rewrite operations that wait. `grads` may be values of all replicas.
    """
    sources = _sources(tensors_of(grads))
    if not sources:
        yield
        return
    with after(*sources):
        computed = tf.no_op("gradients_computed")
    several_replicas = tf.distribute.get_strategy().num_replicas_in_sync > 1
    if several_replicas and not tf.distribute.in_cross_replica_context():
        # Operations that a replica passes to `merge_call` are built elsewhere, but they get the
        # control dependencies of the replica.
        waiting = tf.control_dependencies([computed])
    else:
        waiting = versions.make_some_wait(computed, _writes)
    with waiting:
        yield


def tensors_of(grads: Iterable[Optional[Gradient]]) -> List[Tensor]:
    """Returns the tensors in gradients, except eager tensors; see `writes_after`."""
    strategy = tf.distribute.get_strategy()
    parts = [part for grad in grads for part in strategy.experimental_local_results(grad)]
    tensors = []
    for part in parts:
        tensors += [part.values, part.indices] if isinstance(part, tf.IndexedSlices) else [part]
    return [tensor for tensor in tensors if versions.is_symbolic(tensor)]


def _sources(tensors: Iterable[Tensor]) -> List[Tensor]:
    """Returns the tensors from which `tensors` are computed by operations in `_REWRITTEN`."""
    graph = tf.compat.v1.get_default_graph()
    waiting = list(tensors)
    seen = set()
    sources = []
    while waiting:
        tensor = waiting.pop()
        operation = tensor.op
        if operation in seen:
            continue
        seen.add(operation)
        is_rewritten = _REWRITTEN.fullmatch(operation.type) and not operation.control_inputs
        if is_rewritten and operation.graph is graph:
            waiting += operation.inputs
        elif operation.type != "Const":
            sources.append(tensor)
    return sources


def _writes(operation: Operation) -> bool:
    if _NO_WRITES.search(operation.type):
        return False
    definition = operation.op_def
    return definition.is_stateful or any(argument.is_ref for argument in definition.input_arg)
