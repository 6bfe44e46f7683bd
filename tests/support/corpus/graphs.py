"""One graph that trains every optimizer, each with variables of its own."""

import re
import warnings
import zlib

import numpy as np
import tensorflow as tf

from legacy_opt import OptimizerWrapper
from tests.support.every_optimizer import OF_TENSORFLOW, OPTIMIZERS
from tests.support.running import AS_WRITTEN, in_parts

v1 = tf.compat.v1
KINDS = ("ref", "resource", "partitioned")
SHAPE = (4, 3)
PARTS = 2
STEPS = 3  # before the checkpoint: an odd number, so that sums of gradients are not empty
MAKERS = {**OPTIMIZERS, **OF_TENSORFLOW}


def start(name):
    """Returns the initial value of a variable, which depends on its name alone."""
    random = np.random.RandomState(zlib.crc32(name.encode()))
    return random.uniform(-1, 1, SHAPE).astype(np.float32)


def gradients(number):
    """Returns the gradients of a step: of matrices, and of rows of tables, which share an id."""
    random = np.random.RandomState(number)
    return {
        "matrix": random.uniform(-1, 1, SHAPE).astype(np.float32),
        "rows": random.uniform(-1, 1, (3, SHAPE[1])).astype(np.float32),
        "ids": np.array([3, number % 3, 3], np.int64),
    }


def placeholders():
    return {name: v1.placeholder(a.dtype, a.shape, name) for name, a in gradients(0).items()}


class Training:
    """All optimizers in the default graph.

    Each optimizer is in a variable scope of its name. So the names of its variables do not depend
    on the other optimizers: a new one changes no name in old files. Wrappers train two variables, a
    matrix and a table; other optimizers train a matrix.

    Args:
      kind: one of `KINDS`.
      fed: a dict of tensors with the names of `gradients`.
      step: the global step variable; None to create it.
    """

    def __init__(self, kind, fed, step=None):
        self.kind, self.fed = kind, fed
        self.step = v1.train.get_or_create_global_step() if step is None else step
        self.tracked = {"global_step": self.step}  # by name, for tf.train.Checkpoint
        with warnings.catch_warnings():
            # The step advances once, after all optimizers.
            warnings.simplefilter("ignore")
            updates = [self._update(name, make) for name, make in MAKERS.items()]
        with tf.control_dependencies(updates):
            self.train_op = tf.group(v1.assign_add(self.step, 1))
        self.variables = {each.op.name: each for each in v1.global_variables()}

    def _update(self, name, make):
        with v1.variable_scope(name, use_resource=self.kind != "ref"):
            variables = {each: self._variable(name, each) for each in ("matrix", "table")}
            whole = {each: v if len(v) > 1 else v[0] for each, v in variables.items()}
            optimizer = make(self.step, whole)
            if not isinstance(optimizer, OptimizerWrapper):
                del variables["table"]
            pairs = [pair for each in variables for pair in self._pairs(each, variables[each])]
            done = optimizer.apply_gradients(pairs)
        key = name.replace(".", "_")
        self.tracked[key] = optimizer
        if self.kind == "resource":  # tf.train.Checkpoint refuses other variables
            self.tracked.update((f"{key}_{each}", parts[0]) for each, parts in variables.items())
        return done

    def _variable(self, scope, name):
        parts = PARTS if self.kind == "partitioned" else 0
        return in_parts(name, start(f"{scope}/{name}"), parts)

    def _pairs(self, name, parts):
        if name == "table" and len(parts) == 1:
            slices = tf.IndexedSlices(self.fed["rows"], self.fed["ids"], SHAPE)
            return [(slices, parts[0])]
        return zip(tf.split(self.fed["matrix"], len(parts)), parts)


def optimizer_of(name):
    """Returns the name of a variable's optimizer, "" for the global step."""
    return name.partition("/")[0] if "/" in name else ""


class Session:
    """A session of a new `Training`, which stays open.

    Args:
      kind: one of `KINDS`.
      only: the names of the optimizers to save and restore; None for all. Files that were written
        before an optimizer was added do not have its variables.
    """

    def __init__(self, kind, only=None):
        self.only = {*MAKERS} if only is None else {*only}
        self.graph, self._checkpoint = tf.Graph(), None
        with self.graph.as_default():
            self.training = Training(kind, placeholders())
            self.session = v1.Session(config=AS_WRITTEN)
            self._initializer = v1.global_variables_initializer()
            self.saver = v1.train.Saver(self.saved())

    def start(self):
        """Initializes the variables."""
        self.session.run(self._initializer)

    def train(self, number):
        """Runs the training step with the gradients of this number."""
        feed = {self.training.fed[name]: value for name, value in gradients(number).items()}
        self.session.run(self.training.train_op, feed)

    def saved(self):
        """Returns the variables in the files."""
        variables = self.training.variables
        return [v for name, v in variables.items() if optimizer_of(name) in {*self.only, ""}]

    def state(self):
        """Returns the values of the variables in the files, by name."""
        return self.session.run({each.op.name: each for each in self.saved()})

    def restore(self, name, prefix):
        """Restores the file of this format."""
        with self.graph.as_default():
            if name == "objects":
                status = self._objects().restore(prefix).assert_consumed()
                status.run_restore_ops(self.session)
            else:
                self.saver.restore(self.session, prefix)

    def save(self, name, prefix):
        """Saves a file of this format."""
        with self.graph.as_default():
            if name == "objects":
                self._objects().save(prefix, self.session)
            elif name == "saved_model":
                builder = v1.saved_model.Builder(prefix)
                builder.add_meta_graph_and_variables(self.session, ["train"])
                builder.save()
            else:
                version = v1.train.SaverDef.V1 if name == "v1" else v1.train.SaverDef.V2
                saver = v1.train.Saver(write_version=version)
                options = {"write_meta_graph": False, "write_state": False}
                saver.save(self.session, prefix, **options)

    def _objects(self):
        if self._checkpoint is None:  # the same object restores again with the same operations
            self._checkpoint = self._new_objects()
        return self._checkpoint

    def _new_objects(self):
        owners = {name.replace(".", "_") for name in self.only}
        tracked = {
            key: each
            for key, each in self.training.tracked.items()
            if key == "global_step" or re.sub("_(matrix|table)$", "", key) in owners
        }
        return v1.train.Checkpoint(**tracked)
