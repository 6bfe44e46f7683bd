"""Tests that TensorFlow's Saver restores checkpoints of save_v1_checkpoint in a TF1 graph.

The next training steps in the graph equal the next training steps in Keras, bit for bit, if the
variables are not partitioned. The argument `like` is an old checkpoint of the graph. The new
checkpoint gets the scopes, partitions and dtypes of the old checkpoint.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint
from tests.support.checkpoints.v1_checkpoint_cases import (
    ALL,
    AVERAGES,
    END,
    EVERY_OPTIMIZER,
    PARTS,
    RENAMED,
    SCOPES,
    Net,
    adam,
    assert_goes_on_in_v1,
    assert_restores,
    described,
    layout,
    momentum,
    moved,
    moved_over,
    net_problem,
    problem_for,
    trained_in_keras,
    trained_in_parts,
    way_of,
)
from tests.support.checkpoints.v1_checkpoints import (
    APIS,
    BEFORE,
    EVERY_API,
    KerasTraining,
    assert_equal,
    assert_same_steps,
    keras_of,
    problem,
    tensors,
    v1_training,
)
from tests.support.keras.keras_cases import CASES

v1 = tf.compat.v1


# Without `like`.


@pytest.mark.one_lane
@pytest.mark.in_turn(name=EVERY_OPTIMIZER, api=APIS[::-1])
def test_every_optimizer_goes_on_in_its_graph(name, api, tmp_path):
    way, config = way_of(name)
    case = ALL[name]
    training = trained_in_keras(problem_for(case), case.make, api, way)
    path = str(tmp_path / "model")
    report = save_v1_checkpoint(path, training.variables, training.optimizer)
    assert report.complete
    assert {transfer.target for transfer in report.transferred} == set(tensors(path))
    with v1_training(training.problem, case.make) as session:
        names = set(session.by_name())
    assert set(tensors(path)) == names
    assert_goes_on_in_v1(path, training, case.make, way, config)


@pytest.mark.in_turn(name=["Adam", "AdagradDecay"], api=APIS)
def test_a_graph_of_ref_variables_restores_it(name, api, tmp_path):
    training = trained_in_keras(problem(), CASES[name].make, api)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer)
    assert_restores(tmp_path / "out", training.state(), CASES[name].make, use_resource=False)


@pytest.mark.in_turn(case=[("Momentum", "float16"), ("Adam", "float64")], api=APIS)
def test_other_dtypes(case, api, tmp_path):
    name, dtype = case
    case = CASES[name]
    training = trained_in_keras(problem_for(case, dtype), case.make, api)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer)
    assert_goes_on_in_v1(tmp_path / "out", training, case.make)


@EVERY_API
def test_before_the_first_step(api, tmp_path):
    """The saved slots have the values that the graph's initializer would assign."""
    training = KerasTraining(problem(), adam, api, start=1)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer)
    with v1_training(problem(), adam) as session:
        expected = {n: session.session.run(v) for n, v in session.by_name().items()}
    assert_equal(tensors(tmp_path / "out"), expected)


# With `like`.


FORMS = {
    "plain": {},
    "variable scope": {"scope": SCOPES["variable scope"]},
    "name scope": {"scope": SCOPES["name scope"]},
    "both": {"scope": SCOPES["both"]},
    "parts": {"parts": PARTS},
    "name scope and parts": {"scope": SCOPES["name scope"], "parts": PARTS},
    "old format": {"saver": {"write_version": v1.train.SaverDef.V1}},
}


@pytest.mark.in_turn(form=list(FORMS), name=["Adam", "AdagradDecay", "AdagradDecayV2"], api=APIS)
def test_there_and_back_changes_nothing(form, name, api, original, tmp_path):
    path = original(CASES[name].make, **FORMS[form])
    training = moved_over(path, CASES[name].make, api)
    back = tmp_path / "back"
    report = save_v1_checkpoint(back, training.variables, training.optimizer, like=path)
    assert report.complete
    assert_equal(tensors(back), tensors(path))


@pytest.mark.in_turn(form=["variable scope", "name scope", "both"], api=APIS)
def test_the_graph_with_its_scopes_goes_on(form, api, original, tmp_path):
    path = original(adam, **FORMS[form])
    training = moved_over(path, adam, api)
    training.train(0, BEFORE)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    assert_goes_on_in_v1(tmp_path / "out", training, adam, **FORMS[form])


@pytest.mark.in_turn(scope=[None, "both"], name=["Adam", "AdagradDecayV2"], api=APIS)
def test_the_graph_with_its_parts_restores(scope, name, api, original, tmp_path):
    form = {"parts": PARTS, "scope": SCOPES[scope]} if scope else {"parts": PARTS}
    path = original(CASES[name].make, **form)
    training = moved_over(path, CASES[name].make, api)
    training.train(0, BEFORE)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    # The next training steps are not compared, because partitioned variables round differently.
    assert tf.train.list_variables(str(tmp_path / "out")) == tf.train.list_variables(path)
    assert_restores(tmp_path / "out", training.state(), CASES[name].make, **form)


@pytest.mark.in_turn(name=["Adam", "AdagradDecayV2"], api=APIS)
def test_parts_under_their_own_names(name, api, tmp_path):
    make = CASES[name].make
    path, state = trained_in_parts(tmp_path / "parts", problem(), make, part_by_part=True)
    training = moved_over(path, make, api)
    assert_equal(training.state(), state)
    save_v1_checkpoint(tmp_path / "back", training.variables, training.optimizer, like=path)
    assert_equal(tensors(tmp_path / "back"), tensors(path))
    training.train(0, BEFORE)
    save_v1_checkpoint(tmp_path / "later", training.variables, training.optimizer, like=path)
    assert described(tmp_path / "later") == described(path)
    assert_restores(
        tmp_path / "later", training.state(), make, lambda session: session.by_name(), parts=PARTS
    )


@pytest.mark.in_turn(like=[False, True], api=APIS)
def test_names_of_variables_are_mapped(like, api, tmp_path):
    with v1_training(problem(), adam) as old:
        old.train(0, BEFORE)
        path = old.save(tmp_path / "original", {moved(n): v for n, v in old.by_name().items()})
    training = KerasTraining(problem(), adam, api)
    given = list(training.variables.values())
    load_v1_checkpoint(path, given, training.optimizer, RENAMED)
    assert "tower_0/emb/weights/Adam" in tensors(path)
    options = {"like": path} if like else {}
    save_v1_checkpoint(tmp_path / "out", given, training.optimizer, RENAMED, **options)
    assert_equal(tensors(tmp_path / "out"), tensors(path))
    renamed = {RENAMED[name]: variable for name, variable in training.variables.items()}
    save_v1_checkpoint(tmp_path / "by_v1_names", renamed, training.optimizer, **options)
    assert_equal(tensors(tmp_path / "by_v1_names"), tensors(path))


@EVERY_API
def test_shared_variables_and_the_step_are_mapped(api, tmp_path):
    training = trained_in_keras(problem(), adam, api)
    names = {
        "beta1_power": "beta1_power_1",
        "beta2_power": "beta2_power_1",
        "global_step": "tower/steps",
        "table/Adam_1": "odd/name",
    }
    variables, optimizer = training.variables, training.optimizer
    save_v1_checkpoint(tmp_path / "plain", variables, optimizer)
    save_v1_checkpoint(tmp_path / "mapped", variables, optimizer, name_map=names)
    expected = {names.get(name, name): array for name, array in tensors(tmp_path / "plain").items()}
    assert_equal(tensors(tmp_path / "mapped"), expected)
    save_v1_checkpoint(tmp_path / "stepless", variables, optimizer, {"global_step": None})
    assert set(tensors(tmp_path / "stepless")) == set(tensors(tmp_path / "plain")) - {"global_step"}


@EVERY_API
def test_a_tensor_that_keras_does_not_have_comes_along(api, original, tmp_path):
    others = {
        "ema/matrix": np.float32([[1.5, -2.0]]),
        "vocabulary/size": np.int64(77),
        "words": np.array([b"one", b"two"]),
    }
    path = original(adam, extra=others)
    training = moved_over(path, adam, api, ignore=["ema/.*", "vocabulary/.*", "words"])
    training.train(0, BEFORE)
    report = save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    found = tensors(tmp_path / "out")
    assert described(tmp_path / "out") == described(path)
    for name, array in others.items():
        assert np.array_equal(found[name], array), name
        assert name in str(report)
    assert_goes_on_in_v1(tmp_path / "out", training, adam, extra=others)


@EVERY_API
def test_two_optimizers_of_one_graph(api, original, tmp_path):
    """Keras lacks the state of the second optimizer. This state is copied from `like`."""
    chosen, rest = ("matrix",), ["table.*"]
    path = original(adam, problem(), only=chosen, other=momentum)
    training = moved_over(path, adam, api, problem(chosen), ignore=rest)
    training.train(0, BEFORE)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    before, after = tensors(path), tensors(tmp_path / "out")
    assert set(before) == set(after)
    for name in before:
        is_keras_own = name.startswith(("matrix", "beta", "global_step"))
        assert np.array_equal(before[name], after[name]) != is_keras_own, name


@pytest.mark.in_turn(layouts=[(1, 2), (2, 1)], api=APIS)
def test_the_counts_of_adagrad_decay_go_back_to_their_layout(layouts, api, original, tmp_path):
    old, new = layouts
    path = original(layout(old))
    training = moved_over(path, layout(new), api)
    save_v1_checkpoint(tmp_path / "back", training.variables, training.optimizer, like=path)
    assert_equal(tensors(tmp_path / "back"), tensors(path))
    steps = training.train(BEFORE, END)
    with v1_training(problem(), layout(old)) as session:
        session.restore(tmp_path / "back")
        assert_same_steps(session.train(BEFORE, END), steps)


@EVERY_API
def test_a_step_of_32_bits_stays_one(api, original, tmp_path):
    path = original(adam, step_dtype="int32")
    training = moved_over(path, adam, api)
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer, like=path)
    assert tensors(tmp_path / "out")["global_step"].dtype == np.int32
    assert_goes_on_in_v1(tmp_path / "out", training, adam, step_dtype="int32")


# Models.


@pytest.mark.in_turn(kind=["functional", "Sequential", "subclassed"], api=APIS)
def test_models_with_variables_that_are_not_trained(kind, api, tmp_path):
    net = Net(keras_of(api), kind)
    net.norm.moving_mean.assign(AVERAGES["norm/moving_mean"])
    net.norm.moving_variance.assign(AVERAGES["norm/moving_variance"])
    for name, variable in net.trained().items():
        variable.assign(net_problem().values[name])
    training = KerasTraining(net_problem(), adam, api, net.trained())
    training.train(0, BEFORE)
    path = tmp_path / "out"
    save_v1_checkpoint(path, net.model, training.optimizer, name_map=net.v1_name)
    for name, value in AVERAGES.items():
        assert np.array_equal(tensors(path)[name], value)
    assert_goes_on_in_v1(path, training, adam, extra={n: a * 0 for n, a in AVERAGES.items()})


@EVERY_API
def test_weights_alone(api, tmp_path):
    training = trained_in_keras(problem(), adam, api)
    save_v1_checkpoint(tmp_path / "out", training.variables, None)
    assert_equal(
        tensors(tmp_path / "out"), {name: v.numpy() for name, v in training.variables.items()}
    )


@EVERY_API
def test_saving_does_not_change_the_keras_training(api, tmp_path):
    training, undisturbed = (trained_in_keras(problem(), adam, api) for _ in range(2))
    save_v1_checkpoint(tmp_path / "out", training.variables, training.optimizer)
    assert_same_steps(training.train(BEFORE, END), undisturbed.train(BEFORE, END))
    assert_equal(training.state(), undisturbed.state())


@EVERY_API
def test_the_report_lists_every_tensor(api, tmp_path):
    training = trained_in_keras(problem(), adam, api)
    path = tmp_path / "out"
    report = save_v1_checkpoint(path, training.variables, training.optimizer)
    assert report.complete and not report.left_in_model and not report.left_in_checkpoint
    by_target = {transfer.target: transfer for transfer in report.transferred}
    assert set(by_target) == set(tensors(path))
    for name, array in tensors(path).items():
        assert tuple(by_target[name].shape) == array.shape
        assert tf.as_dtype(by_target[name].dtype) == tf.as_dtype(array.dtype)
        assert name in str(report)
