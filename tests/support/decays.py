"""Trains one variable with AdagradDecay: in a Session, whole or in parts; in Keras; in NumPy."""

import re

import numpy as np
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import to_keras
from tests.support.optimizer_cases.adagrad_decay import AdagradDecay
from tests.support.running import in_parts

v1 = tf.compat.v1
ROWS, COLUMNS = 7, 5
START = np.linspace(-1, 1, ROWS * COLUMNS).reshape(ROWS, COLUMNS).astype(np.float32)
ARGUMENTS = {
    "initial_accumulator_value": 0.1,
    "accumulator_decay_step": 2,
    "accumulator_decay_rate": 0.7,
}
IDS = [[2, 3], [0, 2, 6], [3, 5]]


def make(layout, step):
    """Returns an AdagradDecay optimizer; `layout` is "V1" or "V2"."""
    classes = legacy_opt.AdagradDecayOptimizer, legacy_opt.AdagradDecayOptimizerV2
    return classes[layout == "V2"](0.1, step, **ARGUMENTS)


def gradient_of(number, is_sparse):
    """Returns the gradient of a training step and its ids, or None for a dense gradient."""
    dense = np.random.RandomState(number).normal(size=START.shape).astype(np.float32)
    ids = IDS[number % len(IDS)] if is_sparse else None
    return (dense if ids is None else dense[: len(ids)]), ids


class InNumpy:
    """The reference: DeepRec's definition, for a whole variable.

    `train` has an argument `kinds`, a text with "d" for each dense step, and "s" for each sparse
    step.
    """

    def __init__(self):
        self._oracle, self.steps = AdagradDecay(START, "w", 0.1, layout=2, **ARGUMENTS), 0

    def train(self, kinds):
        for kind in kinds:
            gradient, ids = gradient_of(self.steps, kind == "s")
            self._oracle.update(gradient, Ellipsis if ids is None else ids, self.steps)
            self.steps += 1
        return self

    def state(self):
        """Returns the variable, and the count of each row."""
        return self._oracle.value, self._oracle.slots["accumulator_decay_power"]


class InSession:
    """A graph whose variable has `parts` partitions along `axis`, or is whole if `parts` is 0.

    Args:
      layout: "V1" or "V2".
      parts: the number of partitions.
      use_resource: whether to use resource variables.
      axis: the axis along which the variable is partitioned.
      kinds: the kinds of steps that `train` can run.
      spread: whether each part is on a device of its own.
      **attributes: attributes of the optimizer.
    """

    def __init__(
        self, layout, parts, use_resource=True, axis=0, kinds="ds", spread=False, **attributes
    ):
        self._axis = axis
        with tf.Graph().as_default() as self.graph:
            with v1.device(_device_of_part if spread else None):
                self.parts = in_parts("w", START, parts, axis, use_resource=use_resource)
            self.step = v1.train.get_or_create_global_step()
            self.optimizer = make(layout, self.step)
            for name, value in attributes.items():
                setattr(self.optimizer, name, value)
            self._dense, self._rows = v1.placeholder(tf.float32), v1.placeholder(tf.float32)
            self._ids = v1.placeholder(tf.int64, [None])
            whole = tf.concat(self.parts, axis)
            if axis == 0:
                table = self.parts if parts else self.parts[0]
                read = v1.nn.embedding_lookup(table, self._ids, partition_strategy="div")
            else:
                read = tf.concat([tf.gather(part, self._ids) for part in self.parts], axis)
            losses = {"d": whole * self._dense, "s": read * self._rows}
            self._train_ops = {
                kind: self.optimizer.minimize(tf.reduce_sum(loss), self.step, self.parts)
                for kind, loss in losses.items()
                if kind in kinds
            }
            config = v1.ConfigProto(device_count={"CPU": parts} if spread else {})
            self._saver, self.session = v1.train.Saver(), v1.Session(config=config)
            self.session.run(v1.global_variables_initializer())

    def train(self, kinds):
        for kind in kinds:
            gradient, ids = gradient_of(self.session.run(self.step), kind == "s")
            feed = (
                {self._dense: gradient} if ids is None else {self._rows: gradient, self._ids: ids}
            )
            self.session.run(self._train_ops[kind], feed)
        return self

    def state(self):
        """Returns the variable, and the count of each row; see `InNumpy`."""
        counts = self.session.run(self.counts)
        counts = [count.reshape(-1)[: len(count)] for count in counts]
        # Each part of a variable that is partitioned by columns has counts of all rows.
        counts = counts[0] if self._axis else np.concatenate(counts)
        return np.concatenate(self.session.run(self.parts), self._axis), counts

    @property
    def counts(self):
        """The slots of the parts that contain the counts."""
        return [self.optimizer.get_slot(part, "accumulator_decay_power") for part in self.parts]

    def save(self, folder):
        with self.graph.as_default():
            return self._saver.save(self.session, str(folder / "model"), write_meta_graph=False)

    def restore(self, path):
        with self.graph.as_default():
            self._saver.restore(self.session, str(path))
        return self


def _device_of_part(operation):
    found = re.match(r"w/part_(\d)", operation.name)
    return "/cpu:" + found.group(1) if found else ""


class InKeras:
    """A variable and a bridged optimizer, which run eagerly."""

    def __init__(self, layout):
        self.variables = [tf.Variable(START * 0, name="w")]
        self.optimizer = to_keras(make(layout, None), api="optimizer_v2")

    def train(self, kinds):
        for kind in kinds:
            gradient, ids = gradient_of(int(self.optimizer.iterations.numpy()), kind == "s")
            gradient = tf.constant(gradient)
            if ids is not None:
                gradient = tf.IndexedSlices(gradient, tf.constant(ids, tf.int64), START.shape)
            self.optimizer.apply_gradients([(gradient, self.variables[0])])
        return self
