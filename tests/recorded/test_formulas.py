"""Tests rules that are written as Python functions. Needs NumPy alone."""

import numpy as np
import pytest

from legacy_opt import recorded
from legacy_opt.recorded.formulas import (
    cast,
    div_no_nan,
    expm1,
    log1p,
    maximum,
    norm,
    reduce_mean,
    reduce_sum,
    rsqrt,
    sign,
    sqrt,
    square,
    where,
)
from legacy_opt.recorded.numpy import NumpyOptimizer, Rows
from legacy_opt.recorded.records import RecordError, Slot
from tests.recorded.canonical import canonical
from tests.recorded.written_rules import AMSGRAD, NESTEROV, RMSPROP

NAMES = "beta1", "beta2", "epsilon", "learning_rate"


def momentum(grad, value, slots, hyper):
    mean = slots.momentum * hyper.momentum + grad
    return value - mean * hyper.learning_rate, {"momentum": mean}


def adam_step(value, m, v, hyper):
    rate = hyper.learning_rate * sqrt(1 - hyper.beta2_power) / (1 - hyper.beta1_power)
    return value - rate * m / (sqrt(v) + hyper.epsilon), {"m": m, "v": v}


def lazy_adam(grad, value, slots, hyper):
    m = slots.m + (grad - slots.m) * (1 - hyper.beta1)
    v = slots.v + (square(grad) - slots.v) * (1 - hyper.beta2)
    return adam_step(value, m, v, hyper)


def lazy_adam_of_rows(grad, value, slots, hyper):
    m = slots.m * hyper.beta1 + grad * (1 - hyper.beta1)
    v = slots.v * hyper.beta2 + square(grad) * (1 - hyper.beta2)
    return adam_step(value, m, v, hyper)


def powers(hyper):
    return {f"{each}_power": hyper[f"{each}_power"] * hyper[each] for each in ("beta1", "beta2")}


def rests(hyper):
    return {
        "float32 rest_beta_1": where(hyper.beta_1 == 0.9, 0.1, 1 - hyper.beta_1),
        "float32 rest_beta_2": where(hyper.beta_2 == 0.999, 0.001, 1 - hyper.beta_2),
    }


def lamb(grad, value, slots, hyper):
    rest_1, rest_2 = hyper["float32 rest_beta_1"], hyper["float32 rest_beta_2"]
    step = cast(hyper.global_step + 1)
    m = hyper.beta_1 * slots.m + rest_1 * grad
    v = hyper.beta_2 * slots.v + rest_2 * square(grad)
    m_hat = m / -expm1(step * log1p(-rest_1))
    v_hat = v / -expm1(step * log1p(-rest_2))
    change = m_hat / (sqrt(v_hat) + hyper.epsilon) + hyper.weight_decay_rate * value
    size, length = norm(value), norm(change)
    ratio = where((size > 0) & (length > 0), size / length, 1)
    return value - ratio * hyper.learning_rate * change, {"m": m, "v": v}


def of_catalogue(name, function, suffixes, **others):
    """Writes a record of the catalogue anew; from the record come only names and numbers."""
    record = recorded.load(name)
    slots = {each: Slot("element", "float32", 0.0, suffix) for each, suffix in suffixes.items()}
    values = {each: scalar.value for each, scalar in record.hyperparameters.items()}
    return record, recorded.rule(function, slots, values, name=name, **others)


PAIRS = {
    "momentum": lambda: of_catalogue(
        "MomentumOptimizer", momentum, {"momentum": "Momentum"}, by_rows=True
    ),
    "lazy_adam": lambda: of_catalogue(
        "LazyAdamOptimizer",
        lazy_adam,
        {"m": "Adam", "v": "Adam_1"},
        sparse=lazy_adam_of_rows,
        by_rows=True,
        shared={"beta1_power": "beta1", "beta2_power": "beta2"},
        after=powers,
    ),
    "lamb": lambda: of_catalogue(
        "LAMBOptimizer", lamb, {"m": "adam_m", "v": "adam_v"}, before=rests
    ),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_records_of_the_catalogue_are_written_anew(pair):
    theirs, written = PAIRS[pair]()
    assert canonical(written) == canonical(theirs)


@pytest.mark.parametrize("pair", PAIRS)
def test_written_records_train_with_the_bits_of_the_catalogue(pair):
    random = np.random.RandomState(1)
    start = {"w": random.standard_normal([5, 3]), "table": random.standard_normal([6, 2])}
    start = {name: each.astype("float32") for name, each in start.items()}
    trained = []
    gradients = []
    for _ in range(5):
        rows = Rows(random.randint(0, 6, 8), random.standard_normal([8, 2]).astype("float32"))
        dense = random.standard_normal([5, 3]).astype("float32")
        gradients.append({"w": dense, "table": rows})
    for record in PAIRS[pair]():
        weights = {name: each.copy() for name, each in start.items()}
        optimizer = NumpyOptimizer(record, weights, learning_rate=0.1)
        for each in gradients:
            optimizer.step(each)
        trained.append(weights)
    for name, array in start.items():
        np.testing.assert_array_equal(trained[0][name], trained[1][name])
        assert not np.array_equal(trained[0][name], array)


def rmsprop_by_hand(g, w, s, learning_rate, decay, epsilon):
    s["mean"] = decay * s["mean"] + (1 - decay) * g**2
    return w - learning_rate * g / (np.sqrt(s["mean"]) + epsilon)


def nesterov_by_hand(g, w, s, learning_rate, momentum):
    s["mean"] = momentum * s["mean"] + g
    return w - learning_rate * (g + momentum * s["mean"])


def amsgrad_by_hand(g, w, s, learning_rate, beta1, beta2, epsilon):
    s["step"] = s.get("step", 0) + 1
    s["m"] = beta1 * s["m"] + (1 - beta1) * g
    s["v"] = beta2 * s["v"] + (1 - beta2) * g**2
    s["top"] = np.maximum(s["top"], s["v"])
    root = np.sqrt(s["top"] / (1 - beta2 ** s["step"])) + epsilon
    return w - learning_rate / (1 - beta1 ** s["step"]) * s["m"] / root


@pytest.mark.parametrize(
    ("record", "by_hand"),
    [(RMSPROP, rmsprop_by_hand), (NESTEROV, nesterov_by_hand), (AMSGRAD, amsgrad_by_hand)],
)
def test_a_rule_trains_as_a_loop_in_numpy(record, by_hand):
    random = np.random.RandomState(2)
    w = random.standard_normal([4, 3])
    weights = {"w": w.copy()}
    optimizer = NumpyOptimizer(record.in_dtype("float64"), weights, flush_denormals=False)
    numbers = {name: each.value for name, each in record.hyperparameters.items()}
    slots = {name: np.zeros_like(w) for name in record.groups[0].slots}
    for _ in range(20):
        gradient = random.standard_normal([4, 3])
        w = by_hand(gradient, w, slots, **numbers)
        optimizer.step({"w": gradient})
        np.testing.assert_allclose(weights["w"], w, rtol=1e-13, atol=1e-15)


def test_slots_start_at_hyperparameters_that_are_passed():
    def adagrad(grad, value, slots, hyper):
        total = slots.total + square(grad)
        return value - hyper.rate * grad * rsqrt(total), {"total": total}

    record = recorded.rule(adagrad, {"total": "start"}, {"rate": 1.0, "start": 0.0}, sparse="none")
    assert record.initial == {"total": "start"}
    weights = {"w": np.zeros(1, "float32")}
    NumpyOptimizer(record, weights, start=16.0).step({"w": np.array([3.0], "float32")})
    assert weights["w"] == np.float32(-0.6)
    assert recorded.loads(recorded.dumps(record)) == record


def test_slots_may_have_another_layout():
    """Expectations are Python's."""

    def centered(grad, value, slots, hyper):
        mean = reduce_mean(grad)
        size = maximum(abs(sign(mean)), slots.steps // 2)
        total = reduce_sum(grad, "matrix_row")
        return value - hyper.rate * div_no_nan(grad - mean, cast(size)), {
            "steps": slots.steps + 1,
            "line": total,
        }

    def wrong(grad, value, slots, hyper):
        return centered(grad, value, slots, hyper)

    slots = {
        "steps": Slot("scalar", "int32", 0, "steps"),
        "line": Slot("matrix_row", "float32", 0.0, "l"),
    }
    with pytest.raises(RecordError, match="Maximum has no operands of float32, int32: use `cast`"):
        recorded.rule(wrong, slots, {"rate": 1.0})


def changed(**changes):
    """Writes gradient descent with changed arguments."""

    def descent(grad, value, slots, hyper):
        return value - hyper.rate * grad, {}

    return recorded.rule(
        **{"function": descent, "slots": {}, "hyperparameters": {"rate": 0.1}, **changes}
    )


OTHER = []  # a value of another rule
REFUSED = {
    "if": (lambda g, w, s, h: (w - g if h.rate > 0 else w, {}), r"write where\(condition, x, y\)"),
    "and": (lambda g, w, s, h: (where(g > 0 and w > 0, g, w), {}), "&, |, ~"),
    "slot": (lambda g, w, s, h: (w - s.m, {}), r"there is no slot 'm', but \[\]"),
    "new slot": (lambda g, w, s, h: (w - h.rate * g, {"m": g}), r"there is no slot 'm', but \[\]"),
    "hyperparameter": (
        lambda g, w, s, h: (w - h.beta * g, {}),
        r"there is no hyperparameter 'beta', but \['global_step', 'rate'\]",
    ),
    "unread": (lambda g, w, s, h: (w - g, {}), "does not read the hyperparameter 'rate'"),
    "step": (
        lambda g, w, s, h: (w - h.rate * g / (h.global_step + 1), {}),
        "RealDiv has no operands of float32, int64: use `cast`",
    ),
    "float": (
        lambda g, w, s, h: (w - h.rate * cast(h.global_step + 0.5) * g, {}),
        "expected a symbolic value or a number of int64, got 0.5",
    ),
    "array": (
        lambda g, w, s, h: (w - h.rate * g * np.ones(3), {}),
        r"expected a symbolic value or a number of float32, got array\(\[1., 1., 1.\]\)",
    ),
    "bool": (lambda g, w, s, h: (w - h.rate * True, {}), "a number of float32, got True"),
    "numbers": (lambda g, w, s, h: (w - h.rate * sqrt(2.0), {}), "Sqrt of .*: compute numbers"),
    "one": (lambda g, w, s, h: w - h.rate * g, "returns the new value and a dict of new slots"),
    "dtype": (lambda g, w, s, h: (w - h.rate * g > 0, {}), "the new value must be .*float32.*bool"),
    "other": (
        lambda g, w, s, h: (w - h.rate * (OTHER or [g])[0], {}),
        "only read values that it gets",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_written_is_refused_with_the_way_out(case):
    function, message = REFUSED[case]
    if case == "other":
        changed(function=lambda g, w, s, h: (OTHER.append(g) or w - h.rate * g, {}))
    with pytest.raises(RecordError, match=message):
        changed(function=function)
    OTHER.clear()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hyperparameters": {"rate": "0.1"}}, "a number of float32, got '0.1'"),
        ({"slots": {"m": "start"}}, "starts at 'start', which is no hyperparameter"),
        ({"after": lambda h: {"power": h.rate}}, "'power' is no shared variable"),
        ({"dtype": "float16"}, "float16"),
        ({"by_rows": True, "sparse": lambda g, w, s, h: (w - norm(g), {})}, "rows has a sum"),
    ],
)
def test_wrong_arguments_are_refused(changes, message):
    with pytest.raises(RecordError, match=message):
        changed(**changes)


def test_constants_have_the_dtype_of_the_variables():
    def scaled(grad, value, slots, hyper):
        return value - np.float64(0.1) * grad, {}

    for dtype, number in ("float32", 0.10000000149011612), ("float64", 0.1):
        record = recorded.rule(scaled, {}, {}, dtype=dtype)
        details = [
            each.detail for each in record.groups[0].dense.nodes if each.operation == "Const"
        ]
        assert details == [number]


def test_slots_cannot_be_set():
    def momentum(grad, value, slots, hyper):
        slots.mean = slots.mean + grad
        return value - slots.mean, {}

    with pytest.raises(RecordError, match="returns the new 'mean', and cannot set it"):
        recorded.rule(momentum, {"mean": 0.0}, {})
