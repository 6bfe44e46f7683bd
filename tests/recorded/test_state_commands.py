"""Tests that `export` and `import` move a training from a Session to NumPy and back."""

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import recorded
from legacy_opt.recorded import state_files
from legacy_opt.recorded.numpy import NumpyOptimizer
from tests.recorded.numpy_training import as_rows
from tests.support import problems
from tests.support.checkpoints.v1_checkpoints import tensors

v1 = tf.compat.v1
DECAYS = {"initial_accumulator_value": 0.2, "accumulator_decay_step": 4}
MAKERS = {
    "LazyAdam": lambda step: legacy_opt.LazyAdamOptimizer(0.01),
    "Adam": lambda step: v1.train.AdamOptimizer(0.01, epsilon=0.1),
    "AdagradDecay": lambda step: legacy_opt.AdagradDecayOptimizer(0.3, step, **DECAYS),
    "AdagradDecayV2": lambda step: legacy_opt.AdagradDecayOptimizerV2(0.3, step, **DECAYS),
    "LAMB": lambda step: legacy_opt.LAMBOptimizer(0.01, exclude_from_weight_decay=["bias"]),
    "Adafactor": lambda step: legacy_opt.AdafactorOptimizer(learning_rate=0.05),
    "AdamWeightDecay": lambda step: legacy_opt.AdamWeightDecayOptimizer(0.01, 0.1),
    "GradientDescent": lambda step: v1.train.GradientDescentOptimizer(0.1),
}
# Norms and means over a variable are those of each part, in a partitioned variable.
BY_ELEMENT = [name for name in MAKERS if name not in ("LAMB", "Adafactor")]


def _loss(variable, gradient):
    """Returns a loss whose gradient is the given one, and the placeholders to feed with it."""
    if isinstance(gradient, problems.Rows):
        ids = v1.placeholder(tf.int64, [None])
        values = v1.placeholder(gradient.values.dtype, [None, *gradient.values.shape[1:]])
        rows = v1.nn.embedding_lookup(variable, ids, partition_strategy="div")
        return tf.reduce_sum(rows * values), [ids, values]
    whole = v1.placeholder(gradient.dtype, gradient.shape)
    return tf.reduce_sum(variable * whole), [whole]


def _fed(gradient):
    if isinstance(gradient, problems.Rows):
        return [gradient.ids, gradient.values]
    return [gradient]


def _initialize(session, variables, values):
    session.run(v1.global_variables_initializer())
    for name, variable in variables.items():
        for part in list(variable) if hasattr(variable, "as_tensor") else [variable]:
            info, value = part._save_slice_info, values[name]
            if info is not None:
                value = value[
                    tuple(slice(a, a + n) for a, n in zip(info.var_offset, info.var_shape))
                ]
            session.run(part.assign(value))


def saved_training(problem, make_optimizer, steps, path, restore=None, partitions=None):
    """Trains in a Session that restores and saves checkpoints of a Saver.

    Args:
      problem: a `problems.Problem`.
      make_optimizer: a function of the global step that returns an optimizer.
      steps: the numbers of the steps to train, a range.
      path: the prefix of the checkpoint to save.
      restore: the prefix of a checkpoint to restore; None for the problem's initial values.
      partitions: a dict from names of variables to partitioners.

    Returns:
      The values of the variables after each step.
    """
    with tf.Graph().as_default():
        variables = {
            name: v1.get_variable(
                name,
                value.shape,
                value.dtype,
                v1.zeros_initializer(),
                partitioner=(partitions or {}).get(name),
                use_resource=True,
            )
            for name, value in problem.values.items()
        }
        step = v1.train.get_or_create_global_step()
        losses = {name: _loss(variables[name], each) for name, each in problem.gradients[0].items()}
        optimizer = make_optimizer(step)
        total = sum(loss for loss, _ in losses.values())
        train_op = optimizer.apply_gradients(optimizer.compute_gradients(total), step)
        saver = v1.train.Saver()
        found = []
        with v1.Session() as session:
            _initialize(session, variables, problem.values)
            if restore is not None:
                saver.restore(session, str(restore))
            for number in steps:
                feed = {}
                for name, gradient in problem.gradients[number].items():
                    feed.update(zip(losses[name][1], _fed(gradient)))
                session.run(train_op, feed)
                tensors = {name: tf.convert_to_tensor(each) for name, each in variables.items()}
                found.append({name: np.copy(each) for name, each in session.run(tensors).items()})
            saver.save(session, str(path), write_meta_graph=False)
    return found


def native(name):
    return lambda step: legacy_opt.native.accelerate(MAKERS[name](step), require=True)


def problem_of(record):
    """Returns a problem of 15 steps, with the variables that the rule can train."""
    every = problems.everything(steps=15)
    names = []
    for name, value in every.values.items():
        group = record.group_of(name, value.shape)
        program = group.sparse if name in every.sparse else group.dense
        names += [] if isinstance(program, str) else [name]
    return problems.everything(only=tuple(names), steps=15)


def record_of(name):
    """Returns the record of an optimizer of MAKERS."""
    shapes = {each: value.shape for each, value in problems.everything().values.items()}
    with tf.Graph().as_default():
        optimizer = MAKERS[name](v1.train.get_or_create_global_step())
        return recorded.record(optimizer, shapes if name == "LAMB" else None)


def numpy_steps(path, problem, steps):
    """Trains the state of a file, and writes it back; returns the variables after each step."""
    state = state_files.read(path)
    weights = {name: state.variables[name].copy() for name in state.slots}
    optimizer = NumpyOptimizer(state.record, weights)
    state_files.load_into(optimizer, state)
    found = []
    for number in steps:
        optimizer.step(as_rows(problem.gradients[number]))
        found.append({name: value.copy() for name, value in weights.items()})
    state_files.write(path, state_files.state_of(optimizer))
    return found


def assert_equal(one, other):
    assert len(one) == len(other)
    for number, (a, b) in enumerate(zip(one, other)):
        assert set(a) == set(b)
        for name in a:
            np.testing.assert_array_equal(a[name], b[name], f"{name}, step {number}")


def there_and_back(name, problem, screen, folder, partitions=None, record=None):
    """Trains 5 steps in a Session, 5 in NumPy and 5 in a Session; compares with 15 in a Session."""
    rule, state = folder / "rule.json", folder / "state.npz"
    recorded.save(record or record_of(name), rule)
    make = native(name)
    expected = saved_training(problem, make, range(15), folder / "all", partitions=partitions)
    saved_training(problem, make, range(5), folder / "five", partitions=partitions)
    facts = screen.json("export", folder / "five", "--rule", rule, "--out", state)
    assert (facts["step"], facts["not_trained"], facts["left_out"]) == (5, [], [])
    assert sorted(facts["variables"]) == sorted(problem.values)
    assert_equal(numpy_steps(state, problem, range(5, 10)), expected[5:10])
    ten = folder / "ten"
    facts = screen.json("import", state, "--like", folder / "five", "--out", ten)
    assert (facts["step"], facts["kept"]) == (10, [])
    found = saved_training(
        problem, make, range(10, 15), folder / "end", restore=ten, partitions=partitions
    )
    assert_equal(found, expected[10:])
    assert_same_tensors(folder / "end", folder / "all")


def assert_same_tensors(one, other):
    one, other = tensors(one), tensors(other)
    assert set(one) == set(other)
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], name)


@pytest.mark.parametrize("name", list(MAKERS))
def test_a_training_goes_to_numpy_and_back(name, screen, tmp_path):
    there_and_back(name, problem_of(record_of(name)), screen, tmp_path)


@pytest.mark.parametrize("name", [name for name in BY_ELEMENT if name != "AdamWeightDecay"])
def test_a_partitioned_table(name, screen, tmp_path):
    problem = problems.make("sparse", steps=15)
    partitions = {"table": v1.fixed_size_partitioner(3)}
    there_and_back(name, problem, screen, tmp_path, partitions)


def test_slots_that_are_saved_for_each_part(screen, tmp_path):
    problem = problems.make("dense", steps=15)
    partitions = {"matrix": v1.fixed_size_partitioner(2)}
    there_and_back("AdamWeightDecay", problem, screen, tmp_path, partitions)
    assert "matrix/part_1/adam_m" in tensors(tmp_path / "five")


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("name", ["AdagradDecay", "AdagradDecayV2"])
def test_counts_in_the_other_layout(name, parts, screen, tmp_path):
    """Tests that a state file has counts in the layout of its record, not of the checkpoint."""
    classes = legacy_opt.AdagradDecayOptimizer, legacy_opt.AdagradDecayOptimizerV2
    other = classes[name == "AdagradDecay"]
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        record = recorded.record(other(0.3, step, **DECAYS))
    problem = problems.make("sparse", steps=15)
    partitions = {"table": v1.fixed_size_partitioner(parts)}
    there_and_back(name, problem, screen, tmp_path, partitions, record)


def test_slots_of_parts_that_cannot_be_joined(screen, tmp_path):
    name, rule = "Adafactor", tmp_path / "rule.json"
    recorded.save(record_of(name), rule)
    partitions = {"matrix": v1.fixed_size_partitioner(2)}
    problem = problems.make("dense")
    saved_training(problem, MAKERS[name], range(2), tmp_path / "two", partitions=partitions)
    command = ["export", tmp_path / "two", "--rule", rule, "--out", tmp_path / "state.npz"]
    error = screen.refused(*command)
    assert "cannot be joined" in error and "matrix/rows_3_to_5_of_5/" in error
    assert not list(tmp_path.glob("*state*"))
