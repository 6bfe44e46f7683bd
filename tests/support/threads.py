"""Counts the updates that are lost when many Python threads run one train_op.

python -m tests.support.threads           prints the table
python -m tests.support.threads docs      writes it into docs/running.md
"""

import re
import sys
import threading
from typing import NamedTuple

import numpy as np
import tensorflow as tf

import legacy_opt
from tests.support.paths import DOCS

v1 = tf.compat.v1
PAGE = DOCS / "running.md"
THREADS = 8
TIMEOUT = 300
ROWS = 4


class Composed(legacy_opt.RuleOptimizer):
    """Counts training steps in a slot, with separate operations that read, add and write."""

    slots = {"count": legacy_opt.Slot()}

    def rule(self, grad, value, slots, hyper):
        del value, hyper
        return grad, {"count": slots.count + tf.ones_like(grad)}


class Added(Composed):
    """Counts training steps in a slot with a `legacy_opt.Addition`, a single operation."""

    def rule(self, grad, value, slots, hyper):
        change, _ = super().rule(grad, value, slots, hyper)
        return change, {"count": legacy_opt.Addition(tf.ones_like(grad))}


class Counted(NamedTuple):
    """An optimizer with a slot that counts the training steps if all gradients are 1.

    Attributes:
      make: a function of the global step and `use_locking` that returns the optimizer.
      slot: the name of the slot.
      start: the slot's initial value.
    """

    make: object
    slot: str
    start: float = 0.0


def adagrad_decay(step, use_locking, fused=True):
    optimizer = legacy_opt.AdagradDecayOptimizer(
        1.0, step, initial_accumulator_value=1.0, use_locking=use_locking
    )
    optimizer.use_fused_kernels = fused
    return optimizer


COUNTED = {
    "AdagradDecay": Counted(adagrad_decay, "accumulator", 1.0),
    "AdagradDecay, its rule": Counted(
        lambda step, locking: adagrad_decay(step, locking, fused=False), "accumulator", 1.0
    ),
    "a rule that returns a new value": Counted(
        lambda step, locking: Composed(locking, "Composed"), "count"
    ),
    "a rule that returns an Addition": Counted(
        lambda step, locking: Added(locking, "Added"), "count"
    ),
    "tf.train.Adagrad": Counted(
        lambda step, locking: v1.train.AdagradOptimizer(1.0, 1.0, use_locking=locking),
        "accumulator",
        1.0,
    ),
}


class Lost(NamedTuple):
    """How many of the training steps were lost.

    Attributes:
      steps: the number of training steps of all threads together.
      global_step: the number of steps that are missing in the global step.
      dense: for the variable with dense gradients, the largest number of steps that are missing in
        an element of its slot.
      sparse: for the variable with sparse gradients, the largest number of steps that are missing
        in an element of its slot, in the rows that have gradients.
    """

    steps: int
    global_step: int
    dense: int
    sparse: int


def in_threads(function, threads=THREADS):
    """Runs a function in several threads at once; raises the first error of any thread."""
    errors, barrier = [], threading.Barrier(threads)

    def run():
        try:
            barrier.wait(TIMEOUT)
            function()
        except BaseException as error:
            errors.append(error)

    running = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(TIMEOUT)
        if thread.is_alive():
            raise TimeoutError(f"A thread has not ended after {TIMEOUT} s.")
    if errors:
        raise errors[0]


def train(counted, use_resource, use_locking, steps, width=2):
    """Runs `steps` training steps in each of `THREADS` threads; returns a `Lost`."""
    with tf.Graph().as_default() as graph, v1.variable_scope("", use_resource=use_resource):
        dense, table = (
            v1.get_variable(name, initializer=tf.zeros([ROWS, width])) for name in ("w", "table")
        )
        step = v1.train.get_or_create_global_step()
        optimizer = counted.make(step, use_locking)
        rows = tf.IndexedSlices(tf.ones([2, width]), tf.constant([3, 1]), [ROWS, width])
        pairs = [(tf.ones([ROWS, width]), dense), (rows, table)]
        train_op = optimizer.apply_gradients(pairs, global_step=step)
        slots = [optimizer.get_slot(variable, counted.slot) for variable in (dense, table)]
        initializer = v1.global_variables_initializer()
        graph.finalize()
        with v1.Session() as session:
            session.run(initializer)
            run = session.make_callable(train_op)
            in_threads(lambda: [run() for _ in range(steps)])
            final_step, (whole, touched), variables = session.run([step, slots, [dense, table]])
    for array in (whole, touched, *variables):
        assert np.isfinite(array).all()
    done = steps * THREADS
    lost = [done - int(np.min(slot - counted.start)) for slot in (whole, touched[[3, 1]])]
    return Lost(done, done - int(final_step), *lost)


def table(steps=250, width=20000, repeats=3):
    """Returns the page's table: the largest numbers of lost steps in `repeats` runs."""
    lines = [
        "| optimizer | variables | `use_locking` | global step | slot, dense | slot, sparse |",
        "|---|---|---|---|---|---|",
    ]
    for name, counted in COUNTED.items():
        for use_resource in (False, True):
            for use_locking in (False, True):
                runs = [
                    train(counted, use_resource, use_locking, steps, width) for _ in range(repeats)
                ]
                lost = [max(getattr(run, field) for run in runs) for field in Lost._fields[1:]]
                words = (name, "resource" if use_resource else "ref", use_locking, *lost)
                lines.append(f"| {' | '.join(map(str, words))} |")
    return "\n".join(lines)


def main(arguments):
    made = table()
    if arguments == ["docs"]:
        page = PAGE.read_text(encoding="utf-8")
        pattern = r"(<!-- lost -->\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda match: match[1] + made + "\n" + match[2], page, flags=re.S)
        PAGE.write_text(page, encoding="utf-8")
    else:
        print(made)


if __name__ == "__main__":
    main(sys.argv[1:])
