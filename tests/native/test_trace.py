"""Tests that `trace` reads a rule completely, or raises an error about the part without C code."""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.native.compiler.emit import emit
from legacy_opt.native.compiler.inputs import inputs_of
from legacy_opt.programs.program import ELEMENT, GRADIENT, SCALAR, VALUE, Input, UnsupportedError
from legacy_opt.programs.trace import Results, trace
from tests.native.rules import traced


@pytest.mark.parametrize(
    "update, message",
    [
        (lambda grad, value: tf.linalg.matmul(grad, value), "the operation MatMul"),
        (lambda grad, value: tf.cumsum(grad), "^kernels do not support the operation Cumsum"),
        (lambda grad, value: grad[:1] + value, "the operation StridedSlice"),
        (
            lambda grad, value: tf.reduce_sum(grad, axis=0, keepdims=True),
            "^kernels do not support Sum over some of the axes",
        ),
        (lambda grad, value: grad * np.float32([[1, 2, 3]]), "a constant whose elements differ"),
        (lambda grad, value: grad - tf.reduce_sum(grad * tf.reduce_sum(value)), "another sum"),
        (lambda grad, value: tf.math.real(tf.cast(grad, tf.complex64)), "the dtype complex64"),
        (lambda grad, value: grad / None, "the rule cannot be traced in a new graph"),
    ],
)
def test_what_has_no_c_code_is_named(update, message):
    with pytest.raises(UnsupportedError, match=message):
        traced(update, rank=2)


def test_equal_operations_are_one_node():
    program = traced(lambda grad, value: tf.square(grad) + tf.square(grad))
    assert [node.operation for node in program.nodes].count("Square") == 1


def test_scalars_are_computed_once_and_unused_ones_are_left_out():
    program = traced(
        lambda grad, value, rate, decay, unused: grad * tf.sqrt(rate * decay),
        scalars=["rate", "decay", "unused"],
    )
    assert [each.name for each in inputs_of(program, []).scalars] == ["decay", "rate"]
    levels = {node.operation: node.level for node in program.nodes}
    assert levels["Sqrt"] == SCALAR and levels["Sub"] == ELEMENT


def test_a_slot_and_a_scalar_may_have_the_same_name():
    gradient, value = Input(GRADIENT, ELEMENT, "float32"), Input(VALUE, ELEMENT, "float32")
    slot, scalar = Input("m", ELEMENT, "float32", True), Input("m", SCALAR, "float32")

    def rule(tensors):
        m = tensors[slot] * tensors[scalar] + tensors[gradient]
        return Results(m, {"m": ("assign", m, None)})

    source = emit(trace([gradient, value, slot, scalar], [None], rule), [slot])
    assert "slot0[i]" in source and "scalars[0]" in source


def test_too_many_slots():
    inputs = [Input(GRADIENT, ELEMENT, "float32"), Input(VALUE, ELEMENT, "float32")]
    inputs += [Input(f"slot{number}", ELEMENT, "float32", True) for number in range(9)]
    with pytest.raises(UnsupportedError, match="at most 8 slots, but this rule has 9"):
        emit(trace(inputs, [None], lambda tensors: Results(tensors[inputs[0]], {})), inputs[2:])


def test_the_source_does_not_depend_on_the_graph():
    """Kernels are found by a hash of the source, so operation names must not change the source."""

    def update(grad, value):
        return tf.exp(grad) / (tf.abs(value) + 1e-3)

    first = emit(traced(update))
    with tf.Graph().as_default(), tf.name_scope("other"):
        tf.constant(1.0)
        assert emit(traced(update)) == first
