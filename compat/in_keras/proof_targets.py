"""Targets of proofs in TensorFlow: v1 optimizers, in a Session or by `to_keras`, and Keras'."""

from __future__ import annotations

from typing import Any, Iterator

import tensorflow as tf

from legacy_opt.core import contract
from legacy_opt.recorded.numpy import Rows
from legacy_opt.recorded.proofs.arguments import changes
from legacy_opt.recorded.proofs.proof import Arrays, Proof, ProofError
from legacy_opt.recorded.proofs.targets import Steps

from . import side_by_side
from .bridge import to_keras

v1 = tf.compat.v1


def _run(make: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    """Trains with a v1 optimizer in a Session, or with an optimizer of `tf.keras`."""
    if not _is_v1(make, steps[0]):
        yield from _in_keras(make, proof, steps)
        return
    _check_dtype(proof)
    problem = _problem(proof)
    with side_by_side.scope(in_session=True) as initialize:
        step = v1.train.get_or_create_global_step()
        arguments = dict(steps[0])
        for name in {name for changed in changes(steps) for name in changed}:
            arguments[name] = tf.compat.v2.Variable(steps[0][name], trainable=False)
        if "global_step" in arguments:
            arguments["global_step"] = step
        optimizer = make(**arguments)
        variables = {
            name: v1.get_variable(name, initializer=value, use_resource=True)
            for name, value in problem.values.items()
        }
        accepted = contract.accepted(optimizer.apply_gradients, global_step=step)
        training = side_by_side.SessionTraining(optimizer, problem, variables, **accepted)
        initialize()
        for gradients, changed in zip(problem.steps, changes(steps)):
            for name, value in changed.items():
                arguments[name].load(value, v1.get_default_session())
            yield training.step(gradients)


def _is_v1(make: Any, arguments: Any) -> bool:
    if isinstance(make, type):
        return issubclass(make, v1.train.Optimizer)
    with tf.Graph().as_default():
        return isinstance(make(**arguments), v1.train.Optimizer)


def _by_to_keras(make: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    _check_dtype(proof)
    return _in_keras(lambda **arguments: to_keras(make(**arguments)), proof, steps)


def _check_dtype(proof: Proof) -> None:
    if proof.record.dtype == "float64":
        raise ProofError("v1 optimizers compute scalars in float32")


def _in_keras(make: Any, proof: Proof, steps: Steps) -> Iterator[Arrays]:
    problem = _problem(proof)
    with side_by_side.scope() as initialize:
        optimizer = make(**steps[0])
        training = side_by_side.training(optimizer, problem, named=True)
        initialize()
        for gradients, changed in zip(problem.steps, changes(steps, ("learning_rate", "lr"))):
            for rate in changed.values():
                optimizer.learning_rate = rate
            yield training.step(gradients)


def _problem(proof: Proof) -> side_by_side.Problem:
    gradients = [[each[name] for name in proof.variables] for each in proof.gradients]
    is_sparse = zip(proof.variables, gradients[0])
    sparse = tuple(name for name, gradient in is_sparse if isinstance(gradient, Rows))
    steps = [[x[::-1] if isinstance(x, Rows) else x for x in each] for each in gradients]
    return side_by_side.Problem(proof.start.variables, sparse, steps)


KINDS = {"tf": _run, "to_keras": _by_to_keras}  # for `legacy_opt.recorded.proofs.targets.find`
