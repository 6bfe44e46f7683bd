"""Tests `legacy-opt prove resume` with checkpoints of a Saver and files of Keras."""

import pytest
import tensorflow as tf

from legacy_opt import versions

v1 = tf.compat.v1
KERAS_3 = versions.keras_facts()["generation"] == 3


def saved(path, beta=0.9, step=2, change=None):
    """Writes a checkpoint after two steps of Adam, and returns its path."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(1)
        kernel = v1.get_variable("dense/kernel", initializer=[[1.0, 2.0], [3.0, 4.0]])
        counter = v1.train.get_or_create_global_step()
        train = v1.train.AdamOptimizer(0.1, beta1=beta)
        update = train.minimize(tf.reduce_sum(kernel**3), counter)
        session.run(v1.global_variables_initializer())
        for _ in range(step):
            session.run(update)
        if change is not None:
            change(session, kernel, train)
        return v1.train.Saver().save(session, str(path), write_meta_graph=False)


@pytest.mark.every_lane  # reads what each TensorFlow writes
def test_checkpoints_of_a_saver(screen, tmp_path):
    def lose(session, kernel, train):
        train.get_slot(kernel, "m").load([[0.0, 0.0], [0.0, 0.0]], session)

    before, same = saved(tmp_path / "a"), saved(tmp_path / "b")
    assert screen.run("prove", "resume", before, same)[:2] == (0, "EQUAL\n")
    after = saved(tmp_path / "c", change=lose)
    code, output, _ = screen.run("prove", "resume", before, after)
    assert code == 1 and output.splitlines() == [
        "DIFFERS: before the first step, after step 2",
        "m of dense/kernel is lost: all elements are 0",
    ]
    facts = screen.json("prove", "resume", before, saved(tmp_path / "d", step=1), code=1)
    causes = {each["slot"] or each["variable"]: each["cause"] for each in facts["findings"]}
    assert causes["global_step"] == "step" and causes["beta1_power"] == "step"
    assert screen.run("prove", "resume", before, tmp_path / "none")[0] == 2


def test_recorded_names(screen, tmp_path):
    before = saved(tmp_path / "a")
    names = tmp_path / "names.json"
    names.write_text('{"dense/kernel": null}')
    code, _, error = screen.run("prove", "resume", before, before, "--name-map", names)
    assert code == 2 and "no variable in common" in error


ENDINGS = (".h5", ".keras", ".weights.h5") if KERAS_3 else (".h5",)


@pytest.mark.parametrize("ending", ENDINGS)
def test_files_of_keras(screen, tmp_path, ending):
    layers = [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2, name="dense")]
    model = tf.keras.Sequential(layers)
    model.compile("adam", "mse")
    model.train_on_batch(tf.ones((1, 3)), tf.ones((1, 2)))
    save = model.save_weights if "weights" in ending else model.save
    first, second = (str(tmp_path / name) + ending for name in "ab")
    save(first)
    save(second)
    assert screen.run("prove", "resume", first, second)[:2] == (0, "EQUAL\n")
    model.layers[-1].bias.assign(model.layers[-1].bias + 1)
    save(second)
    code, output, _ = screen.run("prove", "resume", first, second)
    assert code == 1 and "differs in 2 of 2 elements" in output


if KERAS_3:

    @pytest.mark.every_lane
    def test_layers_of_the_same_name(screen, tmp_path):
        entry = tf.keras.layers.Input((3,))
        towers = [
            tf.keras.Sequential(
                [tf.keras.layers.Input((3,)), tf.keras.layers.Dense(2, name="dense")]
            )
            for _ in range(2)
        ]
        model = tf.keras.Model(entry, towers[0](entry) + towers[1](entry))
        first, second = (str(tmp_path / name) for name in ("a.keras", "b.keras"))
        model.save(first)
        towers[0].layers[0].bias.assign([1.0, 2.0])
        model.save(second)
        assert screen.run("prove", "resume", first, first)[:2] == (0, "EQUAL\n")
        code, output, _ = screen.run("prove", "resume", first, second)
        assert code == 1 and "differs in 2 of 2 elements" in output
