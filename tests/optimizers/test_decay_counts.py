"""Tests that AdagradDecay counts decays alike in whole and partitioned variables, and in moves.

Rows are updated independently, so a partitioned variable trains like a whole one. Wherever a
training continues, values and counts must be those of DeepRec's definition for a whole variable.
"""

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import load_v1_checkpoint, save_v1_checkpoint
from legacy_opt.compat.state.checkpoint_files.reader import open_checkpoint
from legacy_opt.compat.state.checkpoints import conversion_by_name
from tests.support.decays import InKeras, InNumpy, InSession

v1 = tf.compat.v1
pytestmark = pytest.mark.filterwarnings("ignore::legacy_opt.RepartitionWarning")

# The steps before and after a move, and in Keras: "d" is a dense gradient, "s" a sparse one.
KINDS = {"dense": "ddddddd", "sparse": "sssssss", "mixed": "dddssdd", "sparse first": "ssssddd"}
LAYOUTS = ["V1", "V2"]


def assert_same(training, kinds, rows=None):
    """Asserts that a training has the results of `InNumpy`, and the counts of the first rows."""
    (value, counts), (expected, expected_counts) = training.state(), InNumpy().train(kinds).state()
    np.testing.assert_array_equal(counts[:rows], expected_counts[:rows])
    # The values are not exact, because a row's rounding depends on its place in a vector register.
    np.testing.assert_allclose(value, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.pairwise(
    layout=LAYOUTS,
    parts=[0, 1, 3],
    use_resource=[False, True],
    kinds=["dddddddsssssss", "sssssssddddddd", "dsdsddssd"],
    fused=[True, False],
)
def test_a_dense_step_counts_alike_in_parts(layout, parts, use_resource, kinds, fused):
    training = InSession(layout, parts, use_resource, use_fused_kernels=fused)
    assert_same(training.train(kinds), kinds)


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("use_resource", [False, True])
def test_parts_on_other_devices(use_resource, fused):
    training = InSession("V2", 3, use_resource, spread=True, use_fused_kernels=fused)
    assert len({part.device for part in training.parts + training.counts}) == 3
    assert_same(training.train("dddsdd"), "dddsdd")


# Moves: functions from a training, after its first steps, to a training and the steps done since.


def by_saver(before, layout, parts, kinds, folder, use_resource):
    return InSession(layout, parts, use_resource).restore(before.save(folder)), ""


def through_keras(before, layout, parts, kinds, folder, use_resource):
    """Trains in Keras, then in a graph without partitions."""
    keras, path = InKeras(layout), before.save(folder)
    load_v1_checkpoint(path, keras.variables, keras.optimizer)
    keras.train(kinds)
    save_v1_checkpoint(folder / "out", keras.variables, keras.optimizer)
    return InSession(layout, 0, use_resource).restore(folder / "out"), kinds


def through_keras_and_back(before, layout, parts, kinds, folder, use_resource):
    """Trains in Keras with the other layout; the checkpoint of Keras is read by Keras, too."""
    keras, path = InKeras("V2" if layout == "V1" else "V1"), before.save(folder)
    load_v1_checkpoint(path, keras.variables, keras.optimizer)
    keras.train(kinds)
    for number in range(2):
        out = folder / f"out{number}"
        save_v1_checkpoint(out, keras.variables, keras.optimizer, like=path)
        load_v1_checkpoint(out, keras.variables, keras.optimizer)
    before.restore(out)
    return before, kinds


def converted(before, layout, parts, kinds, folder, use_resource):
    source = open_checkpoint(before.save(folder))
    conversion_by_name.write(conversion_by_name.to_saver(source), source, str(folder / "new"))
    return InSession(layout, 0, use_resource).restore(folder / "new"), ""


def in_the_other_layout(before, layout, parts, kinds, folder, use_resource):
    """Converts the layout there, back and there again; then restores the same partitions."""
    path, other = before.save(folder), "V2" if layout == "V1" else "V1"
    for number, to in enumerate([other, layout, other]):
        source, path = open_checkpoint(path), str(folder / f"new{number}")
        conversion_by_name.write(conversion_by_name.to_decay_layout(source, to), source, path)
    first = len(before.parts) if len(before.parts) > 1 else 0
    return InSession(other, first, use_resource).restore(path), ""


MOVES = [by_saver, through_keras, through_keras_and_back, converted, in_the_other_layout]


@pytest.mark.in_turn(
    move=MOVES,
    layout=LAYOUTS,
    parts=[(0, 3), (3, 0), (3, 2), (2, 3), (3, 1)],
    kind=list(KINDS),
    use_resource=[False, True],
)
def test_counts_of_adagrad_decay_through_every_move(
    move, layout, parts, kind, use_resource, tmp_path
):
    kinds, first, second = KINDS[kind], *parts
    if layout == "V1" and kind != "dense" and move is by_saver:
        second = first  # V1 counts rows by position, and warns of it: `RepartitionWarning`
    before = InSession(layout, first, use_resource).train(kinds)
    after, done = move(before, layout, second, kinds, tmp_path, use_resource)
    after.train(kinds)
    assert_same(after, kinds + done + kinds)


@pytest.mark.parametrize(
    "layout, parts", [("V1", (0, 2)), ("V1", (2, 0)), ("V1", (2, 5)), ("V2", (2, 2))], ids=str
)
def test_columns_share_the_count_of_dense_gradients(layout, parts, tmp_path):
    """Only V1 saves the counts of columns in one tensor."""
    before = InSession(layout, parts[0], axis=1).train("ddddddd")
    after = InSession(layout, parts[1], axis=1).restore(before.save(tmp_path)).train("ddd")
    assert_same(after, "dddddddddd", rows=1)  # V1 counts rows by position in each part


@pytest.mark.parametrize("layout", LAYOUTS)
def test_mixed_gradients_of_columns(layout, tmp_path):
    training, keras = InSession(layout, 2, axis=1).train("dddssdds"), InKeras(layout)
    assert_same(training, "dddssdds")
    if layout == "V1":  # V2 saves the counts of each part under another name
        path = training.save(tmp_path)
        load_v1_checkpoint(path, keras.variables, keras.optimizer)
        save_v1_checkpoint(tmp_path / "out", keras.variables, keras.optimizer)
        assert_same(InSession(layout, 0).restore(tmp_path / "out").train("sd"), "dddssddssd")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_parts_that_an_old_version_or_deeprec_trained(layout, tmp_path):
    """Old versions set all counts of a part to the number of its decays; DeepRec sets the first."""
    for length in (None, 1):
        training, keras = InSession(layout, 3).train("ddddddd"), InKeras(layout)
        for slot in training.counts:
            counts = np.zeros(slot.shape, np.int64)
            counts.reshape(-1)[:length] = 3
            with training.graph.as_default():
                training.session.run(slot.assign(counts))
        path = training.save(tmp_path)
        load_v1_checkpoint(path, keras.variables, keras.optimizer)
        save_v1_checkpoint(tmp_path / str(length), keras.variables, keras.optimizer, like=path)
        after = InSession(layout, 2).restore(tmp_path / str(length)).train("ddd")
        assert_same(after, "dddddddddd", rows=1)  # the counts of other rows need not be 0


def applied(training, numbers, gradient=1.0):
    """Applies gradients to some parts of a variable, with one step; returns the counts of parts."""
    with training.graph.as_default():
        pairs = [(tf.ones(part.shape), part) for part in training.parts]
        pairs[-1] = (v1.check_numerics(pairs[-1][0] * gradient, "a gradient"), pairs[-1][1])
        chosen = [pairs[number] for number in numbers]
        training.session.run(training.optimizer.apply_gradients(chosen, training.step))
        return [counts.tolist() for counts in training.session.run(training.counts)]


def test_a_part_without_the_first_part_counts_alone():
    training = InSession("V2", 3).train("d")
    assert applied(training, [1, 2]) == [[0, 0, 0], [1, 1], [1, 1]]
    assert applied(training, [0, 1, 2]) == [[1, 0, 0], [1, 1], [1, 1]]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_gradient_that_fails_in_one_part_changes_no_part(layout):
    training = InSession(layout, 3).train("d")  # a decay is due in the next step
    before = training.state()
    with pytest.raises(tf.errors.InvalidArgumentError, match="a gradient"):
        applied(training, [0, 1, 2], float("nan"))
    for one, other in zip(training.state(), before):
        np.testing.assert_array_equal(one, other)
    assert_same(training.train("ddd"), "dddd")
