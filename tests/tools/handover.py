"""Moves a training with AdagradDecay from one TensorFlow version to another in a checkpoint.

These commands, from the checkout's root, move a training from TensorFlow 1.15 to 2.21 and back::

    .nox/1.15/bin/python -m tests.tools.handover write there
    .nox/2.21/bin/python -m tests.tools.handover continue there back
    .nox/1.15/bin/python -m tests.tools.handover continue back home

`write` trains and saves a Saver checkpoint in a folder. It also writes `values.npz`: all values in
the checkpoint, and the values after `STEPS_AFTER` further training steps on the same TensorFlow.
`continue` restores the checkpoint on another TensorFlow version, trains the same further steps, and
asserts that

* every restored tensor equals the saved tensor bit for bit;
* after each further step, all values equal those of a reference training bit for bit;
* the final values differ by at most `bound` from the final values in `values.npz`, which come from
  the TensorFlow version that saved the checkpoint.

The reference training runs on the same TensorFlow version as `continue`, and starts from the arrays
of the same checkpoint. It uses TensorFlow's own Adagrad, and NumPy decays the accumulators before
each step.

`continue` prints the largest differences from `values.npz` and writes them to `report.txt`. It also
saves a checkpoint and a new `values.npz` in another folder, from which another TensorFlow version
can continue.
"""

import argparse
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2
from tests.support.optimizer_cases.adagrad_decay import AdagradDecay

v1 = tf.compat.v1

STEPS_BEFORE, STEPS_AFTER = 60, 100
OPTIMIZERS = {1: AdagradDecayOptimizer, 2: AdagradDecayOptimizerV2}  # by layout of the decay counts
ARGUMENTS = {
    "learning_rate": 0.3,
    "initial_accumulator_value": 0.2,
    "accumulator_decay_step": 7,
    "accumulator_decay_rate": 0.6,
}
ROWS, INPUTS, OUTPUTS = 9, 5, 3


class Batch(NamedTuple):
    """The data of one training step: ids of a few rows (some repeated), inputs and targets."""

    ids: np.ndarray
    inputs: np.ndarray
    targets: np.ndarray

    @classmethod
    def at(cls, step):
        """Returns the batch of a global step, which is the same with every version of NumPy."""
        random = np.random.RandomState(step)
        ids = random.randint(0, ROWS, size=random.randint(2, 6)).astype(np.int64)
        ids[0] = ids[-1]
        inputs, targets = (
            random.uniform(-1, 1, size=(len(ids), width)).astype(np.float32)
            for width in (INPUTS, OUTPUTS)
        )
        return cls(ids, inputs, targets)

    @classmethod
    def placeholders(cls):
        """Creates placeholders for a batch."""
        inputs, targets = (v1.placeholder(tf.float32, [None, width]) for width in (INPUTS, OUTPUTS))
        return cls(v1.placeholder(tf.int64, [None]), inputs, targets)


class Model:
    """A graph of four least-squares problems: layouts 1 and 2, with ref and resource variables.

    The layout is the shape of the slot in which AdagradDecay counts decays. Layout 1 is the
    variable's shape (`AdagradDecayOptimizer`), and layout 2 is [rows] (`AdagradDecayOptimizerV2`).
    Each problem fits ``table[ids] + inputs @ dense`` to the targets: `table` has a sparse gradient,
    and `dense` has a dense gradient.

    Args:
      make_optimizer: a function of the layout and the global step variable that returns the
        optimizer.

    Attributes:
      step: the global step variable.
      train_op: trains all variables and increments the global step.
      variables: a dict from name to variable.
      optimizers: a dict from a variable's name to its optimizer.
    """

    def __init__(self, make_optimizer):
        self.step = v1.train.get_or_create_global_step()
        self.batch = Batch.placeholders()
        self.variables, self.optimizers = {}, {}
        updates = []
        for layout in OPTIMIZERS:
            optimizer = make_optimizer(layout, self.step)
            updates.append(self._minimize(layout, optimizer))
        with tf.control_dependencies(updates):
            self.train_op = self.step.assign_add(1)

    def _minimize(self, layout, optimizer):
        losses, variables = [], []
        for kind, use_resource in (("ref", False), ("resource", True)):
            with v1.variable_scope(f"layout_{layout}/{kind}", use_resource=use_resource):
                table, dense = _variable("table", ROWS), _variable("dense", INPUTS)
            variables += [table, dense]
            rows = v1.nn.embedding_lookup(table, self.batch.ids)
            error = rows + tf.matmul(self.batch.inputs, dense) - self.batch.targets
            losses.append(tf.reduce_sum(tf.square(error)))
        # A ref variable must not change before all gradients that read it are computed.
        pairs = optimizer.compute_gradients(
            tf.add_n(losses), variables, gate_gradients=v1.train.Optimizer.GATE_GRAPH
        )
        optimizer.global_step_is_advanced = True
        for variable in variables:
            self.variables[variable.op.name] = variable
            self.optimizers[variable.op.name] = optimizer
        return optimizer.apply_gradients(pairs)

    def train(self, sess, step):
        """Runs one training step with the batch of the global step `step`."""
        sess.run(self.train_op, dict(zip(self.batch, Batch.at(step))))


def _variable(name, rows):
    start = np.linspace(-1, 1, rows * OUTPUTS, dtype=np.float32).reshape(rows, OUTPUTS)
    return v1.get_variable(name, start.shape, tf.float32, v1.constant_initializer(start))


def decaying(layout, step):
    """Returns the AdagradDecay optimizer with the given layout."""
    return OPTIMIZERS[layout](global_step=step, **ARGUMENTS)


def stock(layout, step):
    """Returns TensorFlow's own Adagrad, the same for both layouts."""
    del layout, step
    return v1.train.AdagradOptimizer(
        ARGUMENTS["learning_rate"], ARGUMENTS["initial_accumulator_value"]
    )


def read_all(sess):
    """Returns the values of all variables by their names in a checkpoint."""
    return sess.run({variable.op.name: variable for variable in v1.global_variables()})


def write(directory):
    """Trains from initial values; calls `leave_checkpoint`."""
    with tf.Graph().as_default():
        model = Model(decaying)
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            for step in range(STEPS_BEFORE):
                model.train(sess, step)
            leave_checkpoint(model, sess, directory)


def leave_checkpoint(model, sess, directory):
    """Saves a checkpoint, trains `STEPS_AFTER` further steps, and writes `values.npz`."""
    directory = Path(str(directory))
    directory.mkdir(parents=True, exist_ok=True)
    saver = v1.train.Saver(save_relative_paths=True)
    saver.save(sess, str(directory / "model"), write_meta_graph=False)
    arrays = {"tensorflow": np.array(tf.__version__)}
    arrays.update(("saved/" + name, value) for name, value in read_all(sess).items())
    first = sess.run(model.step)
    for step in range(first, first + STEPS_AFTER):
        model.train(sess, step)
    arrays.update(("later/" + name, value) for name, value in read_all(sess).items())
    with open(str(directory / "values.npz.new"), "wb") as file:
        np.savez_compressed(file, **arrays)
    os.replace(str(directory / "values.npz.new"), str(directory / "values.npz"))


def continue_from(directory, out):
    """Continues from a checkpoint; asserts what the module's docstring describes.

    After the further steps, calls `leave_checkpoint` for the folder `out`.

    Returns:
      The line for `report.txt`.
    """
    directory = Path(str(directory))
    with np.load(str(directory / "values.npz")) as file:
        arrays = dict(file)
    saved, never_moved = (
        {key[len(part) :]: value for key, value in arrays.items() if key.startswith(part)}
        for part in ("saved/", "later/")
    )
    expected = stock_steps(str(directory / "model"))
    with tf.Graph().as_default():
        model = Model(decaying)
        with v1.Session() as sess:
            v1.train.Saver().restore(sess, str(directory / "model"))
            assert_equal(read_all(sess), saved, "restored")
            for step, after in expected:
                model.train(sess, step)
                values = read_all(sess)
                assert_equal(values, after, f"step {step}")
            leave_checkpoint(model, sess, out)
    variables, accumulators = differences(values, never_moved)
    return (
        f"{arrays['tensorflow']} -> {tf.__version__}: {len(saved)} tensors bit-equal, "
        f"{STEPS_AFTER} steps equal to stock Adagrad's; differences from the run that never moved: "
        f"variables {variables:.1e}, accumulators {accumulators:.1e}"
    )


def stock_steps(checkpoint):
    """Trains with TensorFlow's Adagrad from a checkpoint's arrays; decays accumulators in NumPy.

    Uses no code of legacy_opt.

    Returns:
      A list with a pair for each training step: the global step before the training step, and a
      dict of all values after it.
    """
    reader, steps = tf.train.load_checkpoint(checkpoint), []
    with tf.Graph().as_default():
        model = Model(stock)
        with v1.Session() as sess:
            sess.run(v1.global_variables_initializer())
            first = reader.get_tensor("global_step")
            states = {}
            for name, variable in model.variables.items():
                variable.load(reader.get_tensor(name), sess)
                states[name] = AdagradDecay(reader.get_tensor(name), name, **ARGUMENTS)
                states[name].slots = {
                    "accumulator": reader.get_tensor(name + "/AdagradDecay"),
                    "accumulator_decay_power": reader.get_tensor(name + "/AdagradDecay_1"),
                }
            slots = {
                name: model.optimizers[name].get_slot(variable, "accumulator")
                for name, variable in model.variables.items()
            }
            for step in range(first, first + STEPS_AFTER):
                for name, state in states.items():
                    # With a zero gradient, the NumPy reference only decays the accumulator.
                    visited = np.unique(Batch.at(step).ids) if "table" in name else Ellipsis
                    state.update(np.float32(0), visited, step)
                    slots[name].load(state.slots["accumulator"], sess)
                model.train(sess, step)
                values = sess.run(model.variables)
                for name, accumulator in sess.run(slots).items():
                    states[name].slots["accumulator"] = np.array(accumulator)
                after = _as_saved(values, states)
                steps.append((step, dict(after, global_step=np.int64(step + 1))))
    return steps


def _as_saved(values, states):
    named = {}
    for name, value in values.items():
        named[name] = value
        named[name + "/AdagradDecay"] = states[name].slots["accumulator"].copy()
        named[name + "/AdagradDecay_1"] = states[name].slots["accumulator_decay_power"].copy()
    return named


def assert_equal(actual, expected, what):
    """Asserts that two dicts of arrays are equal bit for bit."""
    assert set(actual) == set(expected), (what, set(actual) ^ set(expected))
    for name, value in expected.items():
        assert actual[name].dtype == value.dtype and actual[name].shape == value.shape, (what, name)
        if not np.array_equal(actual[name], value):
            raise AssertionError(
                f"{what}: {name} differs by up to {np.max(np.abs(actual[name] - value)):g}"
            )


def differences(actual, expected):
    """Asserts that all differences from the training that never moved are within `bound`.

    Returns:
      The largest differences: of the variables, and of the accumulators.
    """
    largest = {False: 0.0, True: 0.0}
    for name, value in expected.items():
        difference = np.max(np.abs(actual[name].astype(np.float64) - value))
        assert difference <= bound(value), (name, difference, bound(value))
        is_slot = name.endswith("/AdagradDecay")
        largest[is_slot] = max(largest[is_slot], difference)
    return largest[False], largest[True]


def bound(value):
    """Returns the allowed difference from the training that never moved; 0 for integers.

    TensorFlow versions round differently: the results of one step may differ by one or two units in
    the last place (ulps) of the largest value. The signs of rounding errors are random, so the
    difference after n steps is about sqrt(n) times the difference after one step. Gradient descent
    on a convex loss makes differences smaller.

    The measured differences between 1.15 and 2.4, 2.10, 2.15 and 2.21 are up to 2.2 ulps; the bound
    is 20 ulps. An additional decay would change an accumulator by 40 percent. Rounding cannot cause
    an additional decay, because the steps at which accumulators decay depend only on integers.
    """
    if not np.issubdtype(value.dtype, np.floating):
        return 0
    units = 2 * np.sqrt(STEPS_AFTER)
    return units * np.finfo(value.dtype).eps * np.max(np.abs(value))


def main():
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command")
    commands.required = True
    writing = commands.add_parser("write", help="train, and save a checkpoint in DIR")
    continuing = commands.add_parser("continue", help="continue from DIR; save a checkpoint in OUT")
    for command in (writing, continuing):
        command.add_argument("directory", metavar="DIR")
    continuing.add_argument("out", metavar="OUT")
    arguments = parser.parse_args()
    if arguments.command == "write":
        write(arguments.directory)
    else:
        report = continue_from(arguments.directory, arguments.out)
        (Path(arguments.out) / "report.txt").write_text(report)
        print(report)


if __name__ == "__main__":
    main()
