"""Recorded rules, state files and proofs of every optimizer that can be recorded."""

import contextlib
from pathlib import Path

import numpy as np

from legacy_opt import proofs, recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.support.corpus.graphs import MAKERS, SHAPE, STEPS, gradients, start, tf, v1

RECORDS, STATES, PROOFS, LATER = "records", "states", "rules.proof", "later.npz"


def records():
    """Returns the records by the names of `MAKERS`; needs TensorFlow."""
    found = {}
    for name, make in MAKERS.items():
        with tf.Graph().as_default():
            step = v1.train.get_or_create_global_step()
            variables = {part: v1.get_variable(part, SHAPE) for part in ("matrix", "table")}
            record = _recorded(make(step, variables), f"{name}/matrix")
            if record is not None:
                found[name] = record
    return found


def _recorded(optimizer, variable):
    """Returns a record, for this variable alone if the optimizer needs names; None if it has none.

    Most wrappers have no record. It is of no use if hyperparameters are functions.
    """
    for variables in None, {variable: SHAPE}:
        with contextlib.suppress(recorded.RecordError, ValueError, TypeError):
            record = recorded.record(optimizer, variables)
            NumpyOptimizer(record, {variable: start(variable)})
            return record
    return None


def training(name, record):
    """Returns a `NumpyOptimizer` of a matrix."""
    return NumpyOptimizer(record, {f"{name}/matrix": start(f"{name}/matrix")})


def step(optimizer, number):
    """Trains one step with the gradients of this number."""
    (name,) = optimizer.variables
    optimizer.step({name: gradients(number)["matrix"]})


def write(folder):
    """Writes all files into a folder."""
    folder, later, drawn = Path(folder), {}, {}
    for part in RECORDS, STATES:
        (folder / part).mkdir()
    for name, record in records().items():
        recorded.save(record, folder / RECORDS / f"{name}.json")
        optimizer = training(name, record)
        for number in range(STEPS):
            step(optimizer, number)
        state_files.write(folder / STATES / f"{name}.npz", state_files.state_of(optimizer))
        step(optimizer, STEPS)
        later[name] = np.array(optimizer.variables[f"{name}/matrix"])
        try:
            proof = proofs.draw(record, steps=2, ends=[2])
            # Trainings of several optimizers have ends without error bars.
            ends = {number: proofs.End(end.values, {}, {}) for number, end in proof.ends.items()}
            drawn[name] = proof._replace(ends=ends)
        except (proofs.ProofError, recorded.RecordError):
            continue
    proofs.write_run(folder / PROOFS, proofs.Run(drawn, made={"by": "the corpus"}))
    np.savez_compressed(str(folder / LATER), **later)
