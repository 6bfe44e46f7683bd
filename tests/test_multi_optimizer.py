"""MultiOptimizer trains each variable as its optimizer would by itself, and loses none."""

import collections
import contextlib
import functools
import re
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import GlobalStepWarning, MultiOptimizer, versions
from tests import problems, running
from tests.cases import CASES, one_of_each_class
from tests.fed_training import FedTraining

v1 = tf.compat.v1
REF_AND_RESOURCE = pytest.mark.parametrize("use_resource", [False, True], ids=["ref", "resource"])


@pytest.fixture(autouse=True)
def no_wrong_warnings():
    """All that is trained here advances its global step, and is told so."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", GlobalStepWarning)
        yield


def scope(name):
    return re.sub(r"\W", "_", name)


def pattern(name):
    return re.escape(scope(name)) + "/"


def part(problem, names):
    """Returns the problem of some of the variables."""
    return problem._replace(
        values={name: problem.values[name] for name in names},
        gradients=[{name: step[name] for name in names} for step in problem.gradients],
        sparse=tuple(name for name in problem.sparse if name in names),
    )


def scoped(problem, scopes):
    """Returns a problem with the variables of another one in each scope."""

    def in_all(values):
        return {"%s/%s" % (each, name): value for each in scopes for name, value in values.items()}

    return problem._replace(
        values=in_all(problem.values),
        gradients=[in_all(step) for step in problem.gradients],
        sparse=tuple(in_all(dict.fromkeys(problem.sparse))),
    )


def made_of(makers):
    """Returns what makes a MultiOptimizer of makers by scope."""
    return lambda step: MultiOptimizer(
        [(make(step), pattern(name)) for name, make in makers.items()]
    )


# --- Bit for bit what each optimizer does by itself.


HALVES = {"even classes": slice(0, None, 2), "odd classes": slice(1, None, 2)}


@pytest.mark.in_turn
@pytest.mark.parametrize(
    "half, use_resource",
    [
        pytest.param("even classes", False),
        pytest.param("odd classes", True),
        pytest.param("even classes", True, marks=pytest.mark.full),
        pytest.param("odd classes", False, marks=pytest.mark.full),
    ],
)
def test_every_class_in_one_graph(half, use_resource):
    makers = {name: CASES[name].make for name in one_of_each_class()[HALVES[half]]}
    makers.update(adam=lambda step: v1.train.AdamOptimizer(0.1))
    few = problems.everything(only=("matrix", "table"), steps=6)
    problem = scoped(few, list(map(scope, makers)))
    together = FedTraining(made_of(makers), problem, use_resource)
    actual = together.train(0, few.steps)
    expected = [{} for _ in range(few.steps)]
    taken = collections.Counter()
    for each, make in makers.items():
        own = part(problem, [name for name in problem.values if re.match(pattern(each), name)])
        training = FedTraining(make, own, use_resource)
        for number, values in enumerate(training.train(0, few.steps)):
            for name, value in values.items():
                # One graph numbers what several optimizers call by the same name.
                unique = "%s_%d" % (name, taken[name]) if taken[name] else name
                expected[number][name if "/" in name or name == "global_step" else unique] = value
        taken.update(list(training.variables))
    for number, values in enumerate(expected):
        assert set(actual[number]) == set(values)
        for name, value in values.items():
            running._assert_equal(actual[number][name], value, "%s, step %d" % (name, number))
    assert sorted(together.of_optimizer) == sorted(
        set(together.variables) - set(problem.values) - {"global_step"}
    )


FOUR = {
    "Ftrl": lambda step: v1.train.FtrlOptimizer(0.1, l1_regularization_strength=0.01),
    "Decay": lambda step: legacy_opt.AdagradDecayOptimizer(
        0.1, step, accumulator_decay_step=3, accumulator_decay_rate=0.5
    ),
    "Adam": lambda step: v1.train.AdamOptimizer(0.1),
    "Lazy": lambda step: legacy_opt.LazyAdamOptimizer(0.1),
}


WAYS = dict(running.WAYS, function=functools.partial(running.function, autograph=False))


@pytest.mark.parametrize("way", WAYS)
def test_every_way_of_running(way):
    # Functions are slow to build, and newer TensorFlow has one beta1_power in a wrap_function,
    # whoever makes the second.
    names = ("Decay", "Adam") if "function" in way else FOUR
    makers = {name: FOUR[name] for name in names}
    few = problems.everything(only=("matrix", "table"), steps=5)
    problem = scoped(few, list(makers))
    actual = WAYS[way](problem, made_of(makers))
    steps, slots = [{} for _ in range(few.steps)], {}
    for each, make in makers.items():
        own = part(problem, [name for name in problem.values if name.startswith(each + "/")])
        trace = WAYS[way](own, make)
        slots.update(trace.slots)
        for here, found in zip(steps, trace.steps):
            here.update(found)
    running.assert_same(actual, running.Trace(steps, slots), way)


class OneAfterAnother(v1.train.Optimizer):
    """What scripts did without MultiOptimizer: one train op after another, then the step."""

    def __init__(self, optimizers):
        super().__init__(False, "OneAfterAnother")
        self._optimizers = optimizers

    def apply_gradients(self, grads_and_vars, global_step=None, name=None):
        train_ops = []
        for each, optimizer in self._optimizers.items():
            optimizer.global_step_is_advanced = True
            own = [pair for pair in grads_and_vars if pair[1].op.name.startswith(each + "/")]
            train_ops.append(optimizer.apply_gradients(own))
        with tf.control_dependencies(train_ops):
            return v1.assign_add(global_step, 1).op

    def variables(self):
        return [each for inner in self._optimizers.values() for each in inner.variables()]


@pytest.mark.in_turn
@REF_AND_RESOURCE
def test_a_checkpoint_of_separate_optimizers_goes_on_and_back(use_resource, tmp_path):
    problem = scoped(problems.everything(only=("matrix", "table"), steps=12), list(FOUR))
    separate, multi = (
        FedTraining(make, problem, use_resource)
        for make in (
            lambda step: OneAfterAnother({name: make(step) for name, make in FOUR.items()}),
            made_of(FOUR),
        )
    )
    assert set(separate.variables) == set(multi.variables) >= {"beta1_power", "beta1_power_1"}
    trainings, saved, later = [separate, multi], [], []
    for number, training in enumerate(trainings):
        training.train(0, 6)
        saved.append(training.save(str(tmp_path / str(number))))
        later.append(training.train(6, 12))
    for path, training, expected in zip(saved, trainings[::-1], later):
        training.restore(path)
        for one, other in zip(training.train(6, 12), expected):
            for name, value in other.items():
                np.testing.assert_array_equal(one[name], value, err_msg=name)


# --- Routes.


def some_variables():
    """Makes a graph's variables: a partitioned table in a collection, and a layer."""
    with v1.variable_scope("wide"):
        partitioner = v1.fixed_size_partitioner(2)
        table = v1.get_variable("table", [6, 2], partitioner=partitioner)
        for each in table:
            v1.add_to_collection("sparse", each)
    with v1.variable_scope("deep"):
        return table, [v1.get_variable("kernel", [2, 3]), v1.get_variable("bias", [3])]


WHICH = {
    "a regular expression": lambda table: "wide",
    "an alternative": lambda table: "(x|w)ide/t",
    "a list": list,
    "a tuple": tuple,
    "a partitioned variable": lambda table: table,
    "a nested list": lambda table: [[table]],
    "a collection": lambda table: MultiOptimizer.collection("sparse"),
    "a function": lambda table: lambda variable: variable.shape.as_list() == [3, 2],
    "a function that finds a match": lambda table: lambda each: re.search("tab", each.name),
}


@pytest.mark.parametrize("kind", WHICH)
def test_kinds_of_routes(kind):
    with tf.Graph().as_default():
        table, deep = some_variables()
        ftrl, adam = v1.train.FtrlOptimizer(0.1), v1.train.AdamOptimizer(0.1)
        multi = MultiOptimizer([(ftrl, WHICH[kind](table))], default=adam)
        assert multi.wrapped == (ftrl, adam)
        given = deep[:1] + list(table) + deep[1:]
        assert multi.route(given) == [(ftrl, list(table)), (adam, deep)]
        loss = tf.add_n([tf.reduce_sum(each * each) for each in given])
        step = v1.train.get_or_create_global_step()
        multi.minimize(loss, global_step=step)
        assert ftrl.get_slot_names() == ["accum", "linear"] and adam.get_slot_names() == ["m", "v"]
        for each in table:
            assert multi.get_slot(each, "linear") is ftrl.get_slot(each, "linear") is not None
            assert multi.get_slot(each, "m") is None
        names = [variable.op.name for variable in multi.variables()]
        assert "wide/table/part_1/Ftrl" in names and "deep/bias/Adam_1" in names
        assert multi.get_slot_names() == ["accum", "linear", "m", "v"]


def test_graphs_may_know_a_variable_by_several_objects():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [])
        v1.add_to_collection("some", v1.Variable.from_proto(w.to_proto()))
        for which in MultiOptimizer.collection("some"), v1.get_collection("some"):
            optimizer = v1.train.AdamOptimizer(0.1)
            assert MultiOptimizer([(optimizer, which)]).route([w]) == [(optimizer, [w])]


def test_an_optimizer_with_several_routes_makes_one_step():
    problem = problems.everything(only=("matrix", "vector"), steps=5)

    def make(step):
        adam = v1.train.AdamOptimizer(0.1)
        return MultiOptimizer([(adam, "matrix"), (adam, "vec"), (adam, "vector")])

    actual = running.session(problem, make)
    running.assert_same(actual, running.session(problem, lambda _: v1.train.AdamOptimizer(0.1)))


def test_nested():
    makers = dict(FOUR)

    def make(step):
        outer = {name: makers[name](step) for name in makers}
        inner = MultiOptimizer([(outer["Decay"], "Decay"), (outer["Adam"], "Adam")])
        return MultiOptimizer([(outer["Ftrl"], "Ftrl"), (inner, "Decay|Adam")], outer["Lazy"])

    problem = scoped(problems.everything(only=("matrix", "table"), steps=6), list(FOUR))
    running.assert_same(running.session(problem, make), running.session(problem, made_of(FOUR)))


# --- What is refused.


def sgd():
    return v1.train.GradientDescentOptimizer(0.1)


def shared():
    inner = sgd()
    return [(MultiOptimizer([(inner, "a")]), "a"), (inner, "b")]


SYNC = functools.partial(v1.train.SyncReplicasOptimizer, replicas_to_aggregate=1)
REFUSED = {
    "no list": (lambda: sgd(), TypeError, "routes must be a list of pairs"),
    "a dict": (lambda: {"a": sgd()}, TypeError, "routes must be a list of pairs"),
    "nothing": (list, ValueError, "at least one pair"),
    "no pair": (lambda: [sgd()], TypeError, r"routes\[0\] must be a pair"),
    "the wrong order": (lambda: [("a", sgd())], TypeError, "the optimizer comes first"),
    "a class": (lambda: [(v1.train.AdamOptimizer, "a")], TypeError, "instance, not the class"),
    "an empty name": (lambda: [(sgd(), "a"), (sgd(), "")], ValueError, r"routes\[1\].*default="),
    "no expression": (lambda: [(sgd(), "a(")], ValueError, "no regular expression"),
    "an empty list": (lambda: [(sgd(), [])], ValueError, "list of variables is empty"),
    "a list of names": (lambda: [(sgd(), ["a"])], TypeError, "'a' is no variable"),
    "a number": (lambda: [(sgd(), 3)], TypeError, "which must be a regular expression, a list"),
    "nothing to go by": (lambda: [(sgd(), None)], TypeError, "which must be a regular expression"),
    "a layer": (lambda: [(sgd(), tf.Module())], TypeError, "its trainable_variables"),
    "replicas inside": (lambda: [(SYNC(sgd()), "a")], ValueError, "Put it around"),
    "one in two wrappers": (shared, ValueError, "inside of several"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_arguments_that_are_refused(what):
    routes, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        MultiOptimizer(routes())


def test_other_arguments_that_are_refused():
    with pytest.raises(TypeError, match="name must be a string"):
        MultiOptimizer([(sgd(), "a")], name=3)
    with pytest.raises(TypeError, match="holds tf.compat.v1.train.Optimizer instances, got 'a'"):
        MultiOptimizer([(sgd(), "a")], default="a")
    with pytest.raises(TypeError, match="must be a string"):
        MultiOptimizer.collection(3)


def test_strays_are_all_named():
    with tf.Graph().as_default():
        table, deep = some_variables()
        loss = tf.add_n([tf.reduce_sum(each) for each in list(table) + deep])
        routes = [(sgd(), "wide"), (v1.train.AdamOptimizer(0.1), list(table)[0]), (sgd(), "eep")]
        with pytest.raises(ValueError) as caught:
            MultiOptimizer(routes).minimize(loss)
        text = str(caught.value)
        assert "To none go 'deep/kernel:0', 'deep/bias:0'" in text
        assert "nothing goes to GradientDescentOptimizer ('eep')" in text
        assert "'wide/table/part_0:0' to GradientDescentOptimizer ('wide') and AdamOpt" in text
        assert "part_1" not in text and not v1.get_collection(v1.GraphKeys.TRAIN_OP)


def test_a_variable_given_twice():
    with tf.Graph().as_default():
        _, (kernel, _) = some_variables()
        multi = MultiOptimizer([(sgd(), "deep")])
        pairs = multi.compute_gradients(tf.reduce_sum(kernel), [kernel])
        with pytest.raises(ValueError, match="Given twice: 'deep/kernel:0'"):
            multi.apply_gradients(pairs * 2)


def test_no_gradients_at_all():
    with tf.Graph().as_default():
        _, (kernel, bias) = some_variables()
        multi = MultiOptimizer([(sgd(), "deep")])
        with pytest.raises(ValueError, match="no gradients provided.*'deep/bias:0'"):
            multi.apply_gradients([(None, kernel), (None, bias)])


def test_a_typo_that_a_default_would_hide():
    with tf.Graph().as_default():
        _, deep = some_variables()
        multi = MultiOptimizer([(sgd(), "deeep")], default=v1.train.AdamOptimizer(0.1))
        with pytest.warns(UserWarning, match=r"nothing goes to Gradient.*\('deeep'\).*AdamOptim"):
            multi.route(deep)


def test_collections_are_refused_when_executing_eagerly():
    w = tf.Variable(1.0)
    multi = MultiOptimizer([(sgd(), MultiOptimizer.collection("some"))])
    with pytest.raises(ValueError, match="collections in graphs only"):
        multi.apply_gradients([(tf.constant(1.0), w)])


def test_a_function_that_answers_with_a_tensor():
    w = tf.Variable(1.0)
    with pytest.raises(TypeError, match="must answer True or False"):
        MultiOptimizer([(sgd(), lambda variable: variable)]).route([w])


# --- One step.


def wide_and_deep():
    """Makes a model whose gradients depend on all variables; returns its loss and placeholder."""
    random = np.random.RandomState(0)
    ids = v1.placeholder_with_default(np.int64([1, 5, 5, 0]), [None], "ids")

    def variable(name, *shape):
        return v1.get_variable(name, initializer=random.randn(*shape).astype("f"))

    with v1.variable_scope("wide"):
        logits = tf.gather(variable("weights", 6), ids)
    with v1.variable_scope("deep"):
        embedded = tf.gather(variable("embeddings", 6, 3), ids)
        hidden = tf.tanh(tf.matmul(embedded, variable("kernel", 3, 2)))
        logits += tf.reduce_sum(hidden, axis=1)
    return tf.reduce_mean(tf.square(logits - 1.0))


def for_wide_and_deep(step):
    return MultiOptimizer(
        [(FOUR["Ftrl"](step), "wide"), (FOUR["Decay"](step), "deep/emb")], FOUR["Adam"](step)
    )


def operations(build, **options):
    """Returns the operations of a graph, by type and how many, without those of the updates."""
    with tf.Graph().as_default() as graph:
        loss = wide_and_deep()
        before = len(graph.get_operations())
        pairs = build().compute_gradients(loss, **options)
        kinds = [operation.type for operation in graph.get_operations()[before:]]
    return [variable.op.name for _, variable in pairs], collections.Counter(kinds)


def test_one_backward_pass_and_options_pass_through():
    optimizers = v1.train.Optimizer
    plain = {}
    for gate in optimizers.GATE_NONE, optimizers.GATE_OP, optimizers.GATE_GRAPH:
        ours = operations(lambda: for_wide_and_deep(None), gate_gradients=gate)
        plain[gate] = operations(sgd, gate_gradients=gate)
        assert ours == plain[gate]
    assert plain[optimizers.GATE_GRAPH] != plain[optimizers.GATE_OP]
    with pytest.raises(ValueError, match="gate_gradients must be"):
        operations(lambda: for_wide_and_deep(None), gate_gradients=17)


class TenTimes(v1.train.GradientDescentOptimizer):
    """Computes other gradients."""

    def compute_gradients(self, *args, **kwargs):
        pairs = super().compute_gradients(*args, **kwargs)
        return [(10.0 * gradient, variable) for gradient, variable in pairs]


def test_an_optimizer_that_computes_its_gradients_itself():
    with tf.Graph().as_default():
        loss = wide_and_deep()
        plain = sgd().compute_gradients(loss)
        multi = MultiOptimizer([(sgd(), "wide"), (TenTimes(0.1), "deep/k")], default=sgd())
        pairs = multi.compute_gradients(loss)
        assert [each for _, each in pairs] == [each for _, each in plain]
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            values, expected = session.run(
                [[gradient for gradient, _ in pairs], [gradient for gradient, _ in plain]]
            )
        np.testing.assert_array_equal(values[0].values, expected[0].values)
        np.testing.assert_array_equal(values[1].values, expected[1].values)
        np.testing.assert_allclose(values[2], 10 * expected[2], rtol=1e-6)
    with pytest.raises(ValueError, match="needs var_list"):
        multi.compute_gradients(lambda: 0.0)


def test_the_whole_step_is_one_operation_of_its_name():
    with tf.Graph().as_default() as graph:
        step = v1.train.get_or_create_global_step()
        train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step, name="train")
        assert v1.get_collection(v1.GraphKeys.TRAIN_OP) == [train_op]
        assert train_op is graph.get_operation_by_name("train")
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for number in range(1, 4):
                session.run(train_op)
                assert session.run(step) == number


def test_without_a_global_step_rules_that_go_by_it_warn():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        with pytest.warns(GlobalStepWarning, match="AdagradDecayOptimizer was given no"):
            for_wide_and_deep(step).minimize(wide_and_deep())


def test_rules_go_by_the_step_before_it_advances():
    """The fourth step is the first of the second period; also where the rule is told the step."""
    steps = []

    def decay_fn(step):
        steps.append(step)
        return tf.cast(step, tf.float32)

    with tf.Graph().as_default():
        w, x = v1.get_variable("w", initializer=0.0), v1.get_variable("x", initializer=0.0)
        own = v1.get_variable("own", initializer=np.int64(3), trainable=False)
        multi = MultiOptimizer(
            [
                (legacy_opt.AddSignOptimizer(1.0, beta=0.0, sign_decay_fn=decay_fn), "w"),
                (legacy_opt.AddSignOptimizer(1.0, beta=0.0, sign_decay_fn=decay_fn), "x"),
            ]
        )
        train_op = multi.apply_gradients([(tf.constant(1.0), w), (tf.constant(1.0), x)], own)
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            assert session.run([w, x, own]) == [-4.0, -4.0, 4]
            session.run(train_op)
            assert session.run([w, x, own]) == [-9.0, -9.0, 5]


def test_an_optimizer_without_gradients_is_left_alone():
    a, b, step = tf.Variable(1.0, name="a"), tf.Variable(1.0, name="b"), tf.Variable(0)
    adam, momentum = v1.train.AdamOptimizer(0.1), v1.train.MomentumOptimizer(0.5, 0.5)
    multi = MultiOptimizer([(adam, [a]), (momentum, b)])
    multi.apply_gradients([(None, a), (tf.constant(1.0), b)], step)
    multi.apply_gradients([(tf.constant(1.0), b)], step)
    assert (a.numpy(), b.numpy(), step.numpy()) == (1.0, -0.25, 2)
    assert adam.variables() == []
    multi.apply_gradients([(tf.constant(1.0), a), (None, b)], step)
    powers = [each.numpy() for each in adam.variables() if "beta1_power" in each.name]
    assert powers == [np.float32(0.9) * np.float32(0.9)]
    assert (b.numpy(), step.numpy()) == (-0.25, 3)


def test_minimize_a_function():
    def train(wrap):
        w, table = tf.Variable([1.0, 2.0], name="w"), tf.Variable(tf.ones([3, 2]), name="table")
        step = tf.Variable(0, dtype=tf.int64, name="step")
        multi = MultiOptimizer([(FOUR["Decay"](step), "table"), (FOUR["Adam"](step), [w])])

        def loss():
            return tf.reduce_sum(tf.square(tf.gather(table, [0, 2, 2]) * w - 1.0))

        def one():
            multi.minimize(loss, global_step=step, var_list=[w, table])

        one = wrap(one)
        for _ in range(5):
            one()
        assert step.numpy() == 5
        return [w.numpy(), table.numpy(), multi.get_slot(w, "v").numpy()]

    for one, other in zip(train(lambda one: one), train(tf.function)):
        np.testing.assert_array_equal(one, other)


# --- Ways to train.


def in_a_session(steps):
    """Trains wide & deep in a plain Session; returns all variables by name."""
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step)
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        with v1.Session() as session:
            session.run(v1.global_variables_initializer())
            for _ in range(steps):
                session.run(train_op)
            return session.run(variables)


def assert_holds(path, state):
    reader = v1.train.NewCheckpointReader(path)
    assert set(reader.get_variable_to_shape_map()) == set(state)
    for name, value in state.items():
        np.testing.assert_array_equal(reader.get_tensor(name), value, err_msg=name)


def test_monitored_training_session(tmp_path):
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        train_op = for_wide_and_deep(step).minimize(wide_and_deep(), global_step=step)
        for last in (3, 7):  # the second session goes on from the first one's checkpoint
            with v1.train.MonitoredTrainingSession(
                checkpoint_dir=str(tmp_path),
                hooks=[v1.train.StopAtStepHook(last_step=last)],
                log_step_count_steps=None,
            ) as session:
                while not session.should_stop():
                    session.run(train_op)
        path = v1.train.latest_checkpoint(str(tmp_path))
    assert_holds(path, in_a_session(7))


def test_inside_sync_replicas():
    with tf.Graph().as_default():
        step = v1.train.get_or_create_global_step()
        wrapped = SYNC(for_wide_and_deep(step), total_num_replicas=1)
        train_op = wrapped.minimize(wide_and_deep(), global_step=step)
        hook = wrapped.make_session_run_hook(is_chief=True, num_tokens=0)
        names = list(in_a_session(0))
        variables = {each.op.name: each for each in v1.global_variables() if each.op.name in names}
        with v1.train.MonitoredTrainingSession(
            hooks=[hook, v1.train.StopAtStepHook(last_step=5)],
            log_step_count_steps=None,
            stop_grace_period_secs=1,
        ) as session:
            while not session.should_stop():
                session.run(train_op)
                last = session._tf_sess().run(variables)
    for name, value in in_a_session(5).items():
        np.testing.assert_array_equal(last[name], value, err_msg=name)


def test_an_object_based_checkpoint(tmp_path):
    def make():
        w, table = tf.Variable([1.0, 2.0], name="w"), tf.Variable(tf.ones([3, 2]), name="table")
        step = tf.Variable(0, dtype=tf.int64, name="step")
        adams = FOUR["Adam"](step), FOUR["Lazy"](step)
        multi = MultiOptimizer([(adams[0], [table]), (adams[1], [w])])
        nested = MultiOptimizer([(multi, "w|table")])

        def train():
            grads = tf.constant([0.5, -1.0]), tf.IndexedSlices(tf.ones([2, 2]), [0, 2], [3, 2])
            nested.apply_gradients(zip(grads, [w, table]), global_step=step)
            return [each.numpy() for each in [w, table, step] + adams[0].variables()]

        return train, tf.train.Checkpoint(w=w, table=table, step=step, optimizer=nested)

    train, checkpoint = make()
    train()
    path = checkpoint.save(str(tmp_path / "model"))
    expected = train()
    for trained_before in (False, True):
        train, checkpoint = make()
        if trained_before:
            train()
        status = checkpoint.restore(path)
        for one, other in zip(train(), expected):
            np.testing.assert_array_equal(one, other)
        status.assert_consumed()


NO_ESTIMATOR = "this TensorFlow has no Estimator"


@contextlib.contextmanager
def estimators():
    if not versions.has_estimator():
        pytest.skip(NO_ESTIMATOR)
    yield v1.estimator.RunConfig(log_step_count_steps=None, tf_random_seed=3)


def test_estimator(tmp_path):
    def model_fn(features, labels, mode):
        del features, labels
        loss, step = wide_and_deep(), v1.train.get_global_step()
        train_op = for_wide_and_deep(step).minimize(loss, global_step=step)
        return v1.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

    with estimators() as config:
        for last in (2, 5):
            estimator = v1.estimator.Estimator(model_fn, str(tmp_path), config)
            estimator.train(lambda: tf.constant(0.0), max_steps=last)
    assert_holds(estimator.latest_checkpoint(), in_a_session(5))


def test_canned_wide_and_deep_with_two_of_ours(tmp_path):
    """Where ours compute what TensorFlow's own do, the estimator ends in the same bits."""
    decay = legacy_opt.AdagradDecayOptimizer(0.1, None)  # decays after 100,000 steps
    # The estimator advances the step itself, after both optimizers.
    decay.global_step_is_advanced = True
    pairs = {
        "ours": (decay, legacy_opt.LazyAdamOptimizer(0.01)),
        "stock": (v1.train.AdagradOptimizer(0.1), v1.train.AdamOptimizer(0.01)),
    }
    column = tf.feature_column.categorical_column_with_identity("id", 9)

    def input_fn():
        ids = {"id": tf.constant([[1], [5], [5], [0]]), "x": tf.constant([1.0, 2.0, 0.5, 0.0])}
        return ids, tf.constant([1, 0, 0, 1])

    found = {}
    with estimators() as config:
        for name, (linear, dnn) in pairs.items():
            estimator = v1.estimator.DNNLinearCombinedClassifier(
                str(tmp_path / name),
                linear_feature_columns=[column],
                linear_optimizer=linear,
                dnn_feature_columns=[tf.feature_column.numeric_column("x")],
                dnn_optimizer=dnn,
                dnn_hidden_units=[3],
                config=config,
            )
            estimator.train(input_fn, steps=4)
            reader = v1.train.NewCheckpointReader(estimator.latest_checkpoint())
            names = reader.get_variable_to_shape_map()
            found[name] = {each: reader.get_tensor(each) for each in names}
            (power,) = [each for each in names if each.endswith("beta1_power")]
    assert found["ours"]["global_step"] == 4
    table = "linear/linear_model/id/weights"
    assert found["ours"][table + "/AdagradDecay_1"].shape == (9, 1)
    for mine, stock in [
        (table, table),
        (table + "/AdagradDecay", table + "/Adagrad"),
        ("dnn/hiddenlayer_0/kernel",) * 2,
        ("dnn/hiddenlayer_0/kernel/Adam", "dnn/hiddenlayer_0/kernel/Adam"),
        (power, power),
    ]:
        np.testing.assert_array_equal(found["ours"][mine], found["stock"][stock], err_msg=mine)
    assert np.any(found["ours"][table] != 0)
