"""Runs operations only if a tensor is true, with ref variables or resource variables."""

from __future__ import annotations

from typing import Any, Callable

import tensorflow as tf

from legacy_opt import versions
from legacy_opt.core.variable_access import after


def run_if(predicate: tf.Tensor, run: Callable) -> Any:
    """Runs the operations of `run()` if `predicate` is true; returns a tensor, or None if eager."""
    building = versions.building()
    if building == versions.FUNCTION:
        return run_by_cond(predicate, run)
    if building != versions.EAGER:
        return run_by_switch(predicate, predicate, lambda _: run())
    if predicate:
        run()
    return None


def run_by_switch(predicate: tf.Tensor, data: Any, run: Callable, waits_for: Any = ()) -> Any:
    """Builds the operations of `run(data)` in a TF1 graph; they run only if `predicate` is true.

    Switch and Merge are used because, with v2 control flow, tf.cond does not accept ref variables.
    Returns a tensor that is available after the operations have run or have been skipped.
    """
    switch = tf.raw_ops.Switch(data=data, pred=predicate)
    with after(*waits_for):
        data = tf.identity(switch.output_true)  # runs only if `predicate` is true
    with after(data):
        operations = run(data)
    with after(*operations):
        done = tf.identity(data)
    return tf.raw_ops.Merge(inputs=[switch.output_false, done]).output


def run_by_cond(predicate: tf.Tensor, run: Callable) -> Any:
    """Like `run_by_switch`, but for functions, in which tf.cond accepts all variables."""

    def branch() -> Any:
        with after(*run()):
            return tf.constant(True)

    return tf.cond(predicate, branch, lambda: tf.constant(False))
