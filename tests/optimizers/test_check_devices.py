"""Tests of `python -m legacy_opt.compat.check_devices`, on two CPUs of TensorFlow's.

Whether a result is exact depends on the processor and on TensorFlow.
"""

import math
import re

import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt.compat import check_devices

v1 = tf.compat.v1
GOOD = re.compile(r"exact|[\d.]+ ulp")
pytestmark = pytest.mark.every_lane  # the kernels and their placement are TensorFlow's


@pytest.fixture(autouse=True)
def two_cpus(monkeypatch):
    config = v1.ConfigProto(allow_soft_placement=True, device_count={"CPU": 2})
    monkeypatch.setattr(check_devices, "CONFIG", config)


def altered(cls, monkeypatch, alter):
    """Makes a class apply gradients altered; a record does not look at this method."""
    apply_gradients = cls.apply_gradients

    def wrong(self, pairs, global_step=None):
        return alter(lambda pairs: apply_gradients(self, pairs, global_step), pairs)

    monkeypatch.setattr(cls, "apply_gradients", wrong)


def scaled(rows, factor):
    return tf.IndexedSlices(rows.values * factor, rows.indices, rows.dense_shape)


def test_each_device_and_dtype_is_checked(monkeypatch, capsys):
    monkeypatch.setattr(check_devices, "DTYPES", ("float32", "float16"))
    assert check_devices.main([v1.train.AdagradDAOptimizer, legacy_opt.RegAdagradOptimizer]) == 0
    first, *lines, last = capsys.readouterr().out.splitlines()
    assert f"TensorFlow {tf.__version__}, " in first and last.startswith("0 bad verdicts.")
    rows = [re.split(" +", GOOD.sub("good", line)) for line in lines if line.startswith("CPU:")]
    assert rows == [
        ["CPU:0", "AdagradDAOptimizer", "good", "unsupported"],
        ["CPU:0", "RegAdagradOptimizer", "good", "reference"],
        ["CPU:1", "AdagradDAOptimizer", "good", "unsupported"],
        ["CPU:1", "RegAdagradOptimizer", "good", "good"],
    ]


@pytest.mark.parametrize(
    "factor, verdict", [(1.0, GOOD.pattern), (1.001, "WRONG: [0-9]"), (math.nan, "WRONG: nan")]
)
def test_a_wrong_update_is_seen(monkeypatch, factor, verdict):
    altered(
        v1.train.AdagradOptimizer,
        monkeypatch,
        lambda apply, pairs: apply([pairs[0], (scaled(pairs[1][0], factor), pairs[1][1])]),
    )
    found, _ = check_devices.compared("CPU:1", v1.train.AdagradOptimizer, "float32")
    assert re.match(verdict, found)


def test_operations_on_another_device_are_listed(monkeypatch):
    cls = legacy_opt.RegAdagradOptimizer

    def with_cpu_0(apply, pairs):
        with tf.device("/device:CPU:0"):
            least = tf.minimum(pairs[0][0], 1e30)
        return apply([(least, pairs[0][1]), pairs[1]])

    verdict, operations = check_devices.compared("CPU:1", cls, "float64")
    assert GOOD.match(verdict) and operations == set()
    altered(cls, monkeypatch, with_cpu_0)
    verdict, operations = check_devices.compared("CPU:1", cls, "float64")
    assert GOOD.match(verdict) and "Minimum" in operations and operations <= {"Minimum", "Const"}
    assert check_devices.compared("CPU:0", cls, "float64")[1] == set()


def test_an_error_is_bad(monkeypatch, capsys):
    def fail(apply, pairs):
        raise ValueError("no\nmemory")

    altered(v1.train.AdagradOptimizer, monkeypatch, fail)
    assert check_devices.main([v1.train.AdagradOptimizer]) == 1
    printed = capsys.readouterr().out
    assert printed.count("FAILS: no memory") == 6 and "6 bad verdicts" in printed
