"""Trains with native kernels in every execution mode, and compares with NumPy implementations."""

import functools

import pytest
import tensorflow as tf

from legacy_opt.compat.cli import native_diagnosis
from legacy_opt.native.updates import kernel_choice
from legacy_opt.programs import optimizers
from legacy_opt.programs.program import UnsupportedError
from tests.support import ending_datasets, problems, rules, running
from tests.support.cases import CASES, one_of_each_class, why_no_kernel
from tests.support.oracle_runs import assert_close, refuses, run_oracles

RULES = [name for name, case in CASES.items() if optimizers.may_have_kernels(case.optimizer)]
WITH_KERNELS = [name for name in RULES if not why_no_kernel(name)]
DTYPES = ("float16", "float32", "float64")


def make(name):
    """Returns a function that makes the case's optimizer, with native="require"."""

    def native(global_step):
        optimizer = CASES[name].make(global_step)
        optimizer.native = "require"
        return optimizer

    return native


def trainable(name, *variables):
    """Returns the variables for which a case has kernels; "table" and "bias" are sparse."""
    return tuple(
        each for each in variables if not why_no_kernel(name, sparse=each in ("table", "bias"))
    )


@functools.lru_cache(maxsize=None)
def in_a_session(name, dtype):
    variables = trainable(name, "matrix", "vector", "table", "bias")
    problem = problems.everything(dtype, variables, steps=11)
    trace = running.session_ref(problem, make(name))
    assert_close(trace, *run_oracles(name, problem), CASES[name].ulps, problem.dtype)
    return problem, trace


@pytest.mark.one_lane
@pytest.mark.in_turn(name=WITH_KERNELS, dtype=DTYPES, way=list(running.WAYS)[1:])
def test_all_ways_follow_the_oracle_and_compute_the_same_bits(name, dtype, way):
    if refuses(name, problems.make("dense", dtype), way, make(name)):
        return
    problem, expected = in_a_session(name, dtype)
    running.assert_same(running.WAYS[way](problem, make(name)), expected, way)


ONE_OF_EACH_CLASS = [name for name in one_of_each_class() if name in WITH_KERNELS]


@pytest.mark.in_turn(name=ONE_OF_EACH_CLASS, way=list(ending_datasets.WAYS))
def test_a_step_at_the_end_of_a_dataset_changes_nothing(name, way):
    problem = problems.everything(only=trainable(name, "matrix", "table"), steps=3)
    assert not ending_datasets.changed(way, problem, make(name))


@pytest.mark.pairwise(
    cls=native_diagnosis.classes(),
    dtype=["float16", "bfloat16", "float32", "float64"],
    sparse=[False, True],
)
def test_every_public_rule_has_kernels_or_a_reason(cls, dtype, sparse):
    make = functools.partial(native_diagnosis.made, cls)
    name = cls.__name__.replace("Optimizer", "")
    reason = why_no_kernel(name, sparse)
    if dtype == "float16" and dtype not in CASES.get(name, CASES["Lion"]).dtypes:
        with pytest.raises(TypeError, match="cannot train variable .* of dtype float16"):
            kernel_choice.source_of(make, tf.float16, sparse)
    elif reason is None:
        assert "legacy_opt_table" in kernel_choice.source_of(make, getattr(tf, dtype), sparse)
    else:
        with pytest.raises(UnsupportedError, match=reason):
            kernel_choice.source_of(make, getattr(tf, dtype), sparse)


@pytest.mark.parametrize("name", [name for name in RULES if why_no_kernel(name)])
def test_an_optimizer_without_kernels_says_why(name):
    problem = problems.everything("float32", ("matrix",), steps=1)
    with pytest.raises(
        UnsupportedError, match=f"runs without a native kernel: {why_no_kernel(name)}"
    ):
        running.session_resource(problem, make(name))


OWN_RULES = {
    "Momentum": lambda _: rules.MomentumRule(0.1, 0.9, use_nesterov=True),
    "Adam": lambda _: rules.AdamRule(0.01),
    "Lion": lambda _: rules.MyLionOptimizer(0.01),
    "DiffGrad": lambda _: rules.MyDiffGradOptimizer(0.01),
}


@pytest.mark.parametrize("name", OWN_RULES)
def test_rules_of_users(name):
    """User-defined rules (see docs/write_an_optimizer.md) are compiled to kernels."""
    problem = problems.everything("float64", ("matrix", "table"), steps=5)

    def make(native):
        def made(global_step):
            optimizer = OWN_RULES[name](global_step)
            optimizer.use_fused_kernels = False
            optimizer.native = native
            return optimizer

        return made

    expected = running.session_resource(problem, make("off"))
    actual = running.session_resource(problem, make("require"))
    running.assert_close(actual, expected, rtol=1e-14, atol=1e-15)
