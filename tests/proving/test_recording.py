"""Trainings in Sessions, recorded in this process."""

import concurrent.futures
import contextlib

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import proofs
from legacy_opt.compat import cli
from legacy_opt.compat.old_programs.proving.training_replay import Options, Replayed
from legacy_opt.compat.old_programs.proving.watching import Recorder
from legacy_opt.recorded.proofs import reference

v1 = tf.compat.v1
STEPS = 8


def feeds(step):
    random = np.random.RandomState(step)
    return {"x:0": random.randn(16, 4).astype("f"), "ids:0": random.randint(0, 20, [16]) * 3}


def build(optimizer, dropout=False):
    """Returns the training step of a small model with an embedding table."""
    x = v1.placeholder(tf.float32, [None, 4], "x")
    ids = v1.placeholder(tf.int64, [None], "ids")
    table = v1.get_variable("table", [70, 4], initializer=v1.random_normal_initializer(seed=1))
    kernel = v1.get_variable("kernel", [4, 3], initializer=v1.random_normal_initializer(seed=2))
    scale = v1.get_variable(
        "scale", [], trainable=False, initializer=v1.random_normal_initializer()
    )
    hidden = tf.nn.embedding_lookup(table, ids) * x * scale
    if dropout:
        hidden *= tf.cast(v1.random_uniform(tf.shape(x)) > 0.2, tf.float32)
    loss = tf.reduce_mean(tf.square(tf.tanh(tf.matmul(hidden, kernel)) - 0.3))
    step = v1.train.get_or_create_global_step()
    return optimizer(step).minimize(loss, global_step=step)


def record(optimizer, steps=STEPS, replayed=None, train=None, **options):
    """Trains, and returns the recorded run and what was said."""
    runs, said = [], []
    chosen = Options(steps, {1, 3, steps}, **{"inputs": True, **options})
    chosen = chosen if replayed is None else replayed.options
    recorder = Recorder(chosen, said.append, lambda count: None, runs.append, replayed)
    with contextlib.suppress(SystemExit), tf.Graph().as_default(), recorder.watching():
        train_op = build(optimizer, **(train or {}))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for i in range(STEPS):
                session.run(train_op, feeds(i))
    return runs[0] if runs else None, said


def decayed_adam(step, epsilon=1e-3):
    rate = v1.train.exponential_decay(0.1, step, 2, 0.9)
    return v1.train.AdamOptimizer(rate() if callable(rate) else rate, epsilon=epsilon)


OPTIMIZERS = {
    "Adam": decayed_adam,
    "AdagradDecay": lambda step: legacy_opt.AdagradDecayOptimizer(
        0.1, step, accumulator_decay_step=3, accumulator_decay_rate=0.8
    ),
    "LazyAdam": lambda step: legacy_opt.LazyAdamOptimizer(v1.train.cosine_decay(0.1, step, 9)),
    "clipped": lambda step: legacy_opt.ClipByGlobalNormOptimizer(
        legacy_opt.LazyAdamOptimizer(0.1), 0.01
    ),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_the_rule_makes_the_recorded_variables(name, tmp_path):
    run, said = record(OPTIMIZERS[name])
    assert not said and len(run.losses) == len(run.inputs) == STEPS
    proofs.write_run(tmp_path / "run", run)
    (proof,) = proofs.read_run(tmp_path / "run").proofs.values()
    assert [*proof.ends] == [1, 3, STEPS] and proof.last.global_step == STEPS
    proof = reference.with_bars(proof)
    steps = dict(enumerate(reference.run(proof), 1))
    assert proofs.judge(proof.ends, {i: steps[i] for i in proof.ends}).name != proofs.DIFFERS
    rows = proof.start.variables["table"].shape[0]  # TensorFlow's Adam changes all rows
    assert rows == (70 if name == "Adam" else 20)


def replays(run, optimizer, train=None):
    """Returns the report of a replay of the training."""
    found = [record(optimizer, replayed=Replayed(run, seed), train=train) for seed in (None, 1, 2)]
    return proofs.compare_runs(run, found[0][0], [each for each, _ in found[1:]])["Adam"]


def test_the_same_training_does_not_differ_even_with_dropout():
    run, said = record(decayed_adam, train={"dropout": True})
    assert not said and any("random_uniform" in name for name in run.inputs[0])
    report = replays(run, decayed_adam, train={"dropout": True})
    assert report.verdict.name != proofs.DIFFERS and not report.origin
    np.testing.assert_allclose(*report.losses, rtol=1e-5)


def test_another_fed_number_is_said():
    def fed(rate, replayed=None):
        runs = []
        options = replayed.options if replayed else Options(2, {2}, True)
        recorder = Recorder(options, lambda text: None, lambda count: None, runs.append, replayed)
        with contextlib.suppress(SystemExit), tf.Graph().as_default(), recorder.watching():
            w, x = v1.get_variable("w", [3]), v1.placeholder(tf.float32, [], "rate")
            update = v1.train.AdamOptimizer(x).minimize(tf.reduce_sum(w**2))
            with v1.Session() as session:
                session.run(v1.global_variables_initializer())
                for _ in range(2):
                    session.run(update, {x: rate})
        return runs[0]

    run = fed(0.1)
    for rate, count in ((0.1, 0), (0.2, 1)):
        again, *moved = (fed(rate, Replayed(run, seed)) for seed in (None, 1, 2))
        report = proofs.compare_runs(run, again, moved)["Adam"]
        assert report.verdict.name != proofs.DIFFERS
        text = "the script itself feeds other numbers than the recorded 'rate:0'"
        assert [*report.notes] == [text] * count


def test_another_epsilon_and_other_gradients_are_told_apart():
    run, _ = record(decayed_adam)
    report = replays(run, lambda step: decayed_adam(step, epsilon=1.001e-3))
    assert (report.verdict.name, report.origin) == (proofs.DIFFERS, "optimizer")
    assert report.verdict.place.step == 1

    class Scaled(v1.train.AdamOptimizer):
        def compute_gradients(self, loss, *args, **kwargs):
            return super().compute_gradients(loss * 1.001, *args, **kwargs)

    run, _ = record(lambda step: v1.train.AdamOptimizer(0.1))
    report = replays(run, lambda step: Scaled(0.1))
    assert (report.verdict.name, report.origin) == (proofs.DIFFERS, "gradient")
    assert report.verdict.place.step == 1


def test_another_first_value_of_a_slot_is_found():
    run, _ = record(lambda step: v1.train.AdagradOptimizer(0.1, name="Adam"))
    other = lambda step: v1.train.AdagradOptimizer(  # noqa: E731
        0.1, initial_accumulator_value=0.2, name="Adam"
    )
    report = replays(run, other)
    assert (report.verdict.name, report.origin) == (proofs.DIFFERS, "optimizer")
    assert "other first values of 'slot/table/accumulator'" in report.notes[0]


class Own(v1.train.Optimizer):
    """An optimizer with an own `apply_gradients`, as that of BERT."""

    def __init__(self, rate):
        super().__init__(False, "Own")
        self.rate = rate

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        done = []
        for grad, variable in grads_and_vars:
            grad = tf.convert_to_tensor(grad)
            zeros = v1.zeros_initializer()
            m = v1.get_variable(variable.op.name + "/own_m", variable.shape, initializer=zeros)
            moment = 0.9 * m + grad
            done += [m.assign(moment), variable.assign(variable - self.rate * moment)]
        return tf.group(*done, global_step.assign_add(1), name=name)


def test_an_optimizer_without_a_rule_and_one_in_a_condition(tmp_path):
    run, said = record(lambda step: Own(0.1))
    assert "Own: its rule, because" in said[0]
    proofs.write_run(tmp_path / "run", run)
    proof = proofs.read_run(tmp_path / "run").proofs["Own"]
    assert not proof.has_rule and proof.hyperparameters[0] == {"rate": 0.1}
    assert [*proof.start.slots["kernel"]] == ["own_m"]
    moment = np.zeros([4, 3], "f")
    for gradients in proof.gradients:
        moment = np.float32(0.9) * moment + gradients["kernel"]
    np.testing.assert_allclose(proof.last.slots["kernel"]["own_m"], moment, rtol=1e-5)

    class Conditional(v1.train.GradientDescentOptimizer):
        def minimize(self, loss, global_step=None):
            pairs = self.compute_gradients(loss)
            apply = lambda: tf.group(self.apply_gradients(pairs))  # noqa: E731
            return v1.cond(global_step < 5, apply, tf.no_op)

    run, said = record(lambda step: Conditional(0.1))
    assert run is None and "inside of a condition" in said[0]


def test_what_is_left_out_is_said():
    run, said = record(decayed_adam, variables="kernel")
    assert [*run.proofs["Adam"].start.variables] == ["kernel"]
    assert said == run.made["left_out"] and "do not match 'kernel'" in said[0]
    assert replays(run, decayed_adam).verdict.name != proofs.DIFFERS
    run, said = record(decayed_adam, limit=0.012)
    assert 0 < len(run.losses) < STEPS and "limit of 0.012 MB" in said[0]
    run, _ = record(decayed_adam, inputs=False)
    with pytest.raises(proofs.ProofError, match="record with --inputs"):
        Replayed(run)


def test_another_change_of_the_variables_ends_the_recording():
    runs, said = [], []
    recorder = Recorder(
        Options(STEPS, {1, STEPS}, False), said.append, lambda count: None, runs.append
    )
    with tf.Graph().as_default(), recorder.watching(), v1.Session() as session:
        train_op = build(decayed_adam)
        clip = [each.assign(each * 0.5) for each in v1.trainable_variables()]
        session.run(v1.global_variables_initializer())
        for i in range(4):
            session.run(train_op, feeds(i))
        session.run(clip)
        with pytest.raises(SystemExit):
            session.run(train_op, feeds(4))
    assert len(runs[0].losses) == 4 and "after step 4, the script changes" in said[0]
    assert [*runs[0].proofs["Adam"].ends] == [1, 4]

    def sometimes_with_a_step(w, loss):
        update = v1.train.AdamOptimizer(0.1).minimize(loss)
        with tf.control_dependencies([update]):
            both = w.assign(w * 0.9)
        calls = iter([update, update, both, update])
        return lambda run: run(next(calls))

    run, said = train(sometimes_with_a_step)
    assert said[0].startswith("after step 2, the script changes 'w'") and len(run.losses) == 2
    assert run.proofs["Adam"].has_rule


def test_the_script_is_ended_and_nothing_stays_watched():
    methods = v1.Session.run, v1.train.Optimizer.apply_gradients
    assert len(record(decayed_adam, steps=4)[0].losses) == 4
    assert (v1.Session.run, v1.train.Optimizer.apply_gradients) == methods


def train(build_step, steps=4, **options):
    """Trains a vector `w` with the function returned by `build_step(w, loss)`."""
    runs, said = [], []
    recorder = Recorder(
        Options(steps, {1, steps}, False, **options), said.append, lambda count: None, runs.append
    )
    with contextlib.suppress(SystemExit), tf.Graph().as_default(), recorder.watching():
        w = v1.get_variable("w", [3], initializer=v1.constant_initializer([1.0, 2.0, 3.0]))
        operation = build_step(w, tf.reduce_sum(w**4))
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            step = operation if callable(operation) else lambda run: run(operation)
            for _ in range(4):
                step(session.run)
    return runs[0] if runs else None, said


def unexplained(run, said, name="Adam"):
    """Whether the rule of an optimizer was left out because it does not explain 'w'."""
    proof = run.proofs[name]
    assert proof.has_rule != any("does not explain 'w'" in each for each in said)
    return not proof.has_rule and [*proof.gradients[0]] == ["w"]


def test_a_rule_that_does_not_make_the_variables_is_left_out(tmp_path):
    def decays_before(w, loss):
        with tf.control_dependencies([w.assign(w * 0.9)]):
            return v1.train.AdamOptimizer(0.1).minimize(loss)

    run, said = train(decays_before)
    assert unexplained(run, said) and "Adam: its rule, because from step 1 on it alone" in said[0]
    proofs.write_run(tmp_path / "run", run)
    proof = proofs.read_run(tmp_path / "run").proofs["Adam"]
    assert not proof.has_rule and {*proof.last.slots["w"]} >= {"m", "v"}

    def two_optimizers(w, loss):
        with tf.control_dependencies([v1.train.AdamOptimizer(0.1).minimize(loss)]):
            return v1.train.GradientDescentOptimizer(0.1).minimize(tf.nn.l2_loss(w))

    run, said = train(two_optimizers)
    assert unexplained(run, said, "GradientDescent") and [*run.proofs] == ["GradientDescent"]
    assert "AdamOptimizer: other operations change 'w', too" in said[0]

    def counts_twice(w, loss):
        step = v1.train.get_or_create_global_step()
        rule = v1.train.AdagradDAOptimizer(0.1, step, l1_regularization_strength=0.01)
        return tf.group(rule.minimize(loss, global_step=step), step.assign_add(1))

    assert unexplained(*train(counts_twice), "AdagradDA")


@pytest.mark.parametrize("use_resource", [True, False])
def test_a_rate_that_the_same_run_call_changes(use_resource):
    def decayed(w, loss):
        rate = v1.get_variable("rate", initializer=0.1, trainable=False, use_resource=use_resource)
        operation = v1.train.RMSPropOptimizer(rate, momentum=0.5).minimize(loss, var_list=[w])
        with tf.control_dependencies([operation]):
            return rate.assign(rate * 0.5).op

    run, said = train(decayed)
    (proof,) = run.proofs.values()
    if use_resource:
        rates = [each["learning_rate"] for each in proof.hyperparameters]
        assert not said and proof.has_rule
        np.testing.assert_allclose(rates, [0.1, 0.05, 0.025, 0.0125], rtol=1e-6)
    else:  # what is fetched may be the next rate
        assert "its rule, because learning_rate is the variable 'rate', which each step" in said[0]


def test_a_run_without_the_rule_of_a_known_class_is_replayed():
    class Decayed(v1.train.AdamOptimizer):
        def __init__(self, rate):
            super().__init__(rate, name="Adam")

        def minimize(self, loss, global_step=None):
            kernel = next(x for x in v1.trainable_variables() if x.op.name == "kernel")
            pairs = self.compute_gradients(loss)
            with tf.control_dependencies([tf.convert_to_tensor(each) for each, _ in pairs]):
                decay = kernel.assign(kernel * 0.9)
            with tf.control_dependencies([decay]):
                return v1.train.AdamOptimizer(0.1).apply_gradients(pairs, global_step)

    run, said = record(lambda step: Decayed(0.1))
    assert "does not explain 'kernel'" in said[0]
    assert replays(run, lambda step: Decayed(0.1)).verdict.name != proofs.DIFFERS


def test_gradients_are_copies_and_variables_only_if_nothing_changes_them():
    buffer = np.zeros(3, "f")

    def fed(w, loss):
        gradient = v1.placeholder(tf.float32, [3])
        operation = v1.train.GradientDescentOptimizer(0.1).apply_gradients([(gradient, w)])

        def step(run):
            buffer[...] += 1
            run(operation, {gradient: buffer})

        return step

    proof = train(fed)[0].proofs["GradientDescent"]
    assert [each["w"][0] for each in proof.gradients] == [1, 2, 3, 4]

    def accumulated(w, loss, is_reset_in_step=False):
        total = v1.get_variable("total", [3], initializer=v1.zeros_initializer(), trainable=False)
        optimizer, x = v1.train.GradientDescentOptimizer(0.1), v1.placeholder(tf.float32, [])
        ((gradient, _),) = optimizer.compute_gradients(loss * x, [w])  # x is fed in `add` alone
        add, operation = total.assign_add(gradient), optimizer.apply_gradients([(total, w)])
        with tf.control_dependencies([operation]):
            reset = total.assign(tf.zeros([3]))

        def step(run):
            run(add, {x: 0.01})
            run(reset if is_reset_in_step else operation)

        return step

    run, said = train(accumulated)
    assert not said and run.proofs["GradientDescent"].has_rule and np.isnan(run.losses).all()
    run, said = train(lambda w, loss: accumulated(w, loss, is_reset_in_step=True))
    assert run is None and "a gradient is the variable 'total'" in said[0]


def test_subclasses_keep_their_rule_or_hyperparameters():
    class Clipped(v1.train.MomentumOptimizer):
        def compute_gradients(self, *args, **kwargs):
            pairs = super().compute_gradients(*args, **kwargs)
            return [(tf.clip_by_norm(gradient, 0.1), each) for gradient, each in pairs]

    run, said = train(lambda w, loss: Clipped(0.1, 0.9).minimize(loss))
    assert not said and run.proofs["Momentum"].has_rule

    class Other(v1.train.AdamOptimizer):
        def apply_gradients(self, *args, **kwargs):
            return super().apply_gradients(*args, **kwargs)

    run, _ = train(lambda w, loss: Other(0.1).minimize(loss))
    assert run.proofs["Adam"].hyperparameters[0]["learning_rate"] == 0.1

    def constrained(w, loss):
        other = v1.get_variable("other", [2], constraint=lambda x: x)
        return v1.train.AdamOptimizer(0.1).minimize(loss + tf.reduce_sum(other**2))

    assert "'other' has a constraint" in train(constrained)[1][0]


def test_sessions_that_are_closed_and_run_calls_that_fail():
    run, said = train(lambda w, loss: v1.train.AdamOptimizer(0.1).minimize(loss), 6)
    assert len(run.losses) == 4
    assert said == run.made["left_out"] == ["more than 4 of 6 steps: the session was closed"]

    def wrong(w, loss):
        operation = v1.train.AdamOptimizer(0.1).minimize(loss)

        def step(run):
            run(operation)
            with pytest.raises((KeyError, ValueError)):
                run("missing:0")

        return step

    assert len(train(wrong)[0].losses) == 4

    def first_fails(w, loss):
        other, u = v1.train.GradientDescentOptimizer(0.1), v1.get_variable("u", [])
        fails = other.minimize(u * v1.placeholder(tf.float32, [], "missing"), var_list=[u])
        operation = v1.train.AdamOptimizer(0.1).minimize(loss, var_list=[w])

        def step(run):
            with pytest.raises(tf.errors.InvalidArgumentError):
                run(fails)
            run(operation)

        return step

    assert len(train(first_fails)[0].losses) == 4


def test_callables_end_the_recording():
    def called(w, loss):
        operation = v1.train.AdamOptimizer(0.1).minimize(loss)
        return lambda run: (run(operation), run.__self__.make_callable(operation)())

    run, said = train(called)
    assert len(run.losses) == 1 and said == ["steps in callables, such as those of Keras' fit"]


def test_a_file_that_cannot_be_written_is_said_at_once(tmp_path, capsys):
    out = tmp_path / "missing" / "run"
    assert cli.main(["prove", "record", "--out", str(out), "--", "train.py"]) == 2
    assert "--out: there is no folder" in capsys.readouterr().err


def test_steps_after_the_last_end_the_script_again_also_in_threads():
    def stubborn(w, loss):
        operation, count = v1.train.AdamOptimizer(0.1).minimize(loss), []

        def step(run):
            count.append(1)
            if len(count) == 1:
                run(operation)
                return
            with concurrent.futures.ThreadPoolExecutor() as threads:
                here = len(count) > 2
                with pytest.raises(SystemExit):
                    run(operation) if here else threads.submit(run, operation).result()

        return step

    run, _ = train(stubborn, steps=2)
    assert len(run.losses) == 2
