"""Hooks for Estimators and monitored sessions: a progress bar, and summaries of slots."""

from __future__ import annotations

import inspect
import os
from typing import Any, Collection, Dict, List, Optional, Set, Tuple, Union

import numpy as np
import tensorflow as tf

from legacy_opt.core import argument_checks
from legacy_opt.core.global_step import find_global_step
from legacy_opt.core.types import GlobalStep, KerasOptimizer, Tensor, V1Optimizer, Variable

v1 = tf.compat.v1
_NO_SCALAR = "loss must be a scalar, got a tensor of shape %s."
_STATISTICS = {"mean": tf.reduce_mean, "min": tf.reduce_min, "max": tf.reduce_max}


class ProgressBarHook(v1.train.SessionRunHook):
    """Shows a progress bar with the loss and the steps per second. Requires tqdm.

    The bar shows the global step. Therefore the bar of a resumed training starts at the restored
    step, and in a cluster the bar of each worker shows the steps of all workers. The bar is closed
    when the training ends, also if an exception ends it. If a session is recreated after an error,
    a new bar is shown.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            loss, step = tf.reduce_sum(w * w), tf.compat.v1.train.get_or_create_global_step()
            train_op = legacy_opt.LazyAdamOptimizer(0.1).minimize(loss, global_step=step)
            hook = legacy_opt.ProgressBarHook(loss, total_steps=3)
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                for _ in range(3):
                    session.run(train_op)

    Args:
      loss: the scalar tensor to show, or its name in the graph. None means the last scalar in the
        collection `LOSSES`, which is the loss of an Estimator. If the collection has no scalar, no
        loss is shown.
      total_steps: the global step at which the training ends, like an Estimator's `max_steps`; None
        if it is unknown.
      **options: further arguments of `tqdm.tqdm`, for example ``desc="Adagrad"``,
        ``file=sys.stdout``, or ``disable=None`` to show no bar if the output is not a terminal.

    Raises:
      ImportError: tqdm is not installed.
      TypeError: an argument has the wrong type; or `options` has an argument that tqdm does not
        accept; or `options` has an argument that this hook sets itself (`iterable`, `total`,
        `initial`).
      ValueError: `total_steps` is below 1. Also, when the training starts: the loss is not a scalar
        or not in the graph, or the graph has no global step.
    """

    def __init__(
        self,
        loss: Union[Tensor, str, None] = None,
        total_steps: Optional[int] = None,
        **options: Any,
    ) -> None:
        self._tqdm = _tqdm()
        if not (loss is None or isinstance(loss, str) or tf.is_tensor(loss)):
            raise TypeError(f"loss must be a tensor, the name of one, or None, got {loss!r}.")
        if total_steps is not None:
            total_steps = argument_checks.positive_integer("total_steps", total_steps)
        for name in sorted(set(options) - _options(self._tqdm)):
            advice = "pass total_steps" if name == "total" else "see tqdm.tqdm"
            raise TypeError(f"ProgressBarHook has no argument {name!r}: {advice}.")
        self._loss = loss
        self._options: Dict[str, Any] = {"unit": "step", "total": total_steps, **options}
        self._bar = None
        self._fetches = {}

    def begin(self) -> None:
        self._fetches = {"step": _global_step("ProgressBarHook")}
        loss = self._loss_in_graph()
        if loss is not None:
            self._fetches["loss"] = loss

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        step = int(session.run(self._fetches["step"]))
        self._bar = self._tqdm(initial=step, **self._options)
        # After an exception, `end` is not called, but the coordinator joins all registered threads.
        coord.register_thread(_ClosesWithTheSession(self._bar))

    def before_run(
        self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> tf.compat.v1.train.SessionRunArgs:
        return v1.train.SessionRunArgs(self._fetches)

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        if "loss" in run_values.results:
            loss = np.asarray(run_values.results["loss"])
            if loss.ndim:
                raise ValueError(_NO_SCALAR % (loss.shape,))
            self._bar.set_postfix_str(f"loss={loss:.4g}", refresh=False)
        self._advance_to(int(run_values.results["step"]))

    def end(self, session: tf.compat.v1.Session) -> None:
        self._advance_to(int(session.run(self._fetches["step"])))
        self._bar.close()

    def _advance_to(self, step: int) -> None:
        self._bar.update(step - self._bar.n)

    def _loss_in_graph(self) -> Optional[Tensor]:
        graph = v1.get_default_graph()
        loss = self._loss
        if loss is None:
            # The collection may also contain tensors with one loss per example.
            losses = graph.get_collection(v1.GraphKeys.LOSSES)
            scalars = [each for each in losses if each.shape.rank == 0]
            return scalars[-1] if scalars else None
        if isinstance(loss, str) and ":" not in loss:
            loss += ":0"
        try:
            loss = graph.as_graph_element(loss, allow_operation=False)
        except (KeyError, ValueError) as error:
            raise ValueError(f"loss is not a tensor of this graph: {loss!r}.") from error
        if loss.shape.rank not in (None, 0):
            raise ValueError(_NO_SCALAR % loss.shape)
        return loss


class SlotSummaryHook(v1.train.SessionRunHook):
    """Writes statistics of an optimizer's slots for TensorBoard.

    The hook writes the mean, minimum and maximum of each slot after the first training step, then
    every `every_n_steps` steps, and at the end. The tags are
    ``slots/<variable>/<slot>/<statistic>``, for example ``slots/embeddings/accumulator/max``. The
    statistics are computed on the slot's device, so that only three numbers per slot are
    transferred. The statistics of global step n are computed after training step n is complete.
    However, other workers of a cluster may be in the middle of a training step at this time.

    Only one worker, the chief, should write statistics: pass the hook to an Estimator in
    `training_chief_hooks`.

    The hook omits empty slots, and slots whose size changes (the rows that
    `GradientAccumulationOptimizer` accumulates). `AdagradDecayOptimizer` uses only some elements of
    its slot `accumulator_decay_power` (for dense gradients, only the first element). Therefore look
    at the maximum of this slot, not at its mean.

    Example::

        with tf.Graph().as_default():
            w = tf.compat.v1.get_variable("w", initializer=[1.0, 2.0])
            step = tf.compat.v1.train.get_or_create_global_step()
            optimizer = legacy_opt.LazyAdamOptimizer(0.1)
            train_op = optimizer.minimize(tf.reduce_sum(w * w), global_step=step)
            hook = legacy_opt.SlotSummaryHook(optimizer, "summaries", slots=["v"])
            with tf.compat.v1.train.MonitoredTrainingSession(hooks=[hook]) as session:
                session.run(train_op)

    Args:
      optimizer: the `tf.compat.v1.train.Optimizer` or Keras OptimizerV2 that trains in the graph.
        It may be the optimizer of a canned Estimator.
      output_dir: the directory to write to, for example an Estimator's `model_dir`.
      every_n_steps: the number of steps between two writes.
      slots: the names of the slots, from `optimizer.get_slot_names()`; None means all slots.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `every_n_steps` is below 1, or `output_dir` is empty. Also, when the training
        starts: the optimizer has no slots in the graph, or does not have one of `slots`, or the
        graph has no global step.
    """

    def __init__(
        self,
        optimizer: Union[V1Optimizer, KerasOptimizer],
        output_dir: Union[str, os.PathLike],
        every_n_steps: int = 100,
        slots: Optional[Collection[str]] = None,
    ) -> None:
        if isinstance(optimizer, type) or not hasattr(optimizer, "get_slot_names"):
            raise TypeError(
                "SlotSummaryHook needs an optimizer with slots, such as a "
                f"tf.compat.v1.train.Optimizer, got {optimizer!r}."
            )
        if isinstance(slots, str):
            raise TypeError(f"slots must be a list of names, got {slots!r}: write [{slots!r}].")
        if not (slots is None or isinstance(slots, (list, tuple, set, frozenset))):
            raise TypeError(f"slots must be a list of names, or None, got {slots!r}.")
        self._optimizer = optimizer
        if isinstance(output_dir, os.PathLike):
            output_dir = os.fspath(output_dir)
        self._output_dir = argument_checks.text("output_dir", output_dir)
        steps = argument_checks.positive_integer("every_n_steps", every_n_steps)
        self._timer = v1.train.SecondOrStepTimer(every_steps=steps)
        self._slots = None
        if slots is not None:
            self._slots = [argument_checks.text("slots", name) for name in slots]
        self._fetches = None
        self._writer = None
        self._written = None  # the step of the last statistics

    def begin(self) -> None:
        self._written = None
        step = _global_step("SlotSummaryHook")
        statistics = {}
        for variable, name, slot in self._slots_in_graph():
            with tf.name_scope("SlotSummaryHook/"), v1.device(slot.device):
                values = slot.read_value()  # another device would have to copy the whole slot
                if values.dtype not in (tf.float32, tf.float64):
                    values = tf.cast(values, tf.float32)  # a 16-bit sum could overflow
                for statistic, reduce in _STATISTICS.items():
                    tag = f"slots/{variable.op.name}/{name}/{statistic}"
                    statistics[tag] = reduce(values)
        self._fetches = {"step": step, "statistics": statistics}
        # Not created by the first write: it may be in eager execution, which refuses to create it.
        self._writer = v1.summary.FileWriterCache.get(self._output_dir)

    def after_create_session(
        self, session: tf.compat.v1.Session, coord: tf.train.Coordinator
    ) -> None:
        self._timer.reset()  # a recreated session may have restored an old step

    def before_run(
        self, run_context: tf.compat.v1.train.SessionRunContext
    ) -> tf.compat.v1.train.SessionRunArgs:
        return v1.train.SessionRunArgs(self._fetches["step"])

    def after_run(
        self,
        run_context: tf.compat.v1.train.SessionRunContext,
        run_values: tf.compat.v1.train.SessionRunValues,
    ) -> None:
        # The returned step may be that before its increment: read it again if a write may be due.
        if not self._timer.should_trigger_for_step(int(run_values.results) + 1):
            return
        step = int(run_context.session.run(self._fetches["step"]))
        if self._timer.should_trigger_for_step(step):
            self._write(run_context.session)
            self._timer.update_last_triggered_step(step)

    def end(self, session: tf.compat.v1.Session) -> None:
        if int(session.run(self._fetches["step"])) != self._written:
            self._write(session)
        self._writer.flush()

    def _write(self, session: tf.compat.v1.Session) -> None:
        results = session.run(self._fetches)
        values = [
            v1.Summary.Value(tag=tag, simple_value=value)
            for tag, value in results["statistics"].items()
        ]
        self._written = int(results["step"])
        self._writer.add_summary(v1.Summary(value=values), self._written)

    def _slots_in_graph(self) -> List[Tuple[Variable, str, Variable]]:
        """Returns (variable, slot name, slot) for all slots whose statistics are written."""
        existing = sorted(self._optimizer.get_slot_names())
        names = existing if self._slots is None else self._slots
        slots = []
        for variable in v1.global_variables():
            for name in names:
                slot = _slot(self._optimizer, variable, name)
                if slot is not None:
                    slots.append((variable, name, slot))
        missing = sorted(set(self._slots or ()) - {name for _, name, _ in slots})
        if missing or not slots:
            missing_names = ", ".join(missing) + " " if missing else ""
            raise ValueError(
                f"{type(self._optimizer).__name__} has no slots {missing_names}in this graph; it "
                f"has {', '.join(existing) or 'none'}. Is this the optimizer that trains?"
            )
        # Slots without elements, or with a changing number of elements, have no statistics.
        return [each for each in slots if each[2].shape.num_elements()]


class _ClosesWithTheSession:
    """Closes a progress bar when a session ends: then `Coordinator.join` calls `is_alive`."""

    name = "ProgressBarHook"

    def __init__(self, bar: Any) -> None:
        self._bar = bar

    def is_alive(self) -> bool:
        self._bar.close()
        return False


def _tqdm() -> Any:
    """Returns the class `tqdm` for notebooks in a notebook, else the class for terminals."""
    try:
        from tqdm.auto import tqdm
    except ImportError as error:
        raise ImportError(
            "ProgressBarHook needs tqdm, which is not installed. Install it with: pip install tqdm"
        ) from error
    return tqdm


def _options(tqdm: Any) -> Set[str]:
    """Returns the names of tqdm's arguments, without the arguments that the hook sets itself."""
    names = set().union(*(inspect.signature(cls.__init__).parameters for cls in tqdm.__mro__))
    return names - {"self", "args", "kwargs", "iterable", "total", "initial"}


def _global_step(hook: str) -> GlobalStep:
    step = find_global_step()
    if step is None:
        raise ValueError(
            f"{hook} reads the global step, and this graph has none: call "
            "tf.compat.v1.train.get_or_create_global_step()."
        )
    return step


def _slot(optimizer: Any, variable: Variable, name: str) -> Any:
    try:
        return optimizer.get_slot(variable, name)
    except KeyError:  # a Keras optimizer does not train this variable
        return None
