"""Tests on TensorFlow 1.15: our wrappers equal the originals in `tf.contrib` bit for bit.

A wrapper is an optimizer that calls another optimizer. After every training step, the tests compare
all variables of the graph by name.
"""

import functools

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from tests.support import problems
from tests.support.fed_training import FedTraining
from tests.training_contrib.comparison import assert_same

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1
contrib = tf.contrib.opt
FULL = pytest.mark.full
HALF, STEPS = 10, 20
SOME = ("vector", "matrix", "table")
KINDS = {"ref": False, "resource": True}


class Bare:
    """Wraps only an optimizer's `apply_gradients`, because some originals fail in other methods."""

    def __init__(self, optimizer, change=list):
        self._optimizer, self._change = optimizer, change

    def apply_gradients(self, grads_and_vars, global_step):
        return self._optimizer.apply_gradients(self._change(grads_and_vars), global_step)

    def get_slot_names(self):
        return []

    variables = get_slot_names


def variables_by_name():
    return {variable.op.name: variable for variable in v1.global_variables()}


def problem_for(zeros=False, dtype="float32", only=SOME):
    """Returns a problem with dense and sparse gradients.

    If `zeros` is true, some gradients are 0, and some gradients have a row of zeros.
    """
    problem = problems.everything(dtype, only, STEPS)
    if zeros:
        for number, step in enumerate(problem.gradients):
            for position, gradient in enumerate(step.values()):
                values = gradient.values if isinstance(gradient, problems.Rows) else gradient
                if (number + position) % 3 == 0:
                    values[...] = 0
                elif (number + position) % 3 == 1 and values.ndim:
                    values[0] = 0
    return problem


INNER = {
    "Adam": lambda: v1.train.AdamOptimizer(0.05),
    "Momentum": lambda: v1.train.MomentumOptimizer(0.05, 0.9),
    "SGD": lambda: v1.train.GradientDescentOptimizer(0.05),
    "Nadam": lambda: legacy_opt.NadamOptimizer(0.05),
    "Ftrl": lambda: v1.train.FtrlOptimizer(0.05),
}


def averaged(home, inner, step, **options):
    if options.pop("counted", False):
        options["num_updates"] = step
    return home.MovingAverageOptimizer(inner, **options)


def clipped(home, inner, step, dims, max_norm=0.7, **options):
    known = variables_by_name()
    dims = {known[name]: each for name, each in dims.items() if name in known}
    return home.VariableClippingOptimizer(inner, dims, max_norm, **options)


def by_norm(home, inner, step, clip_norm):
    home = tf.contrib.estimator if home is contrib else home
    return home.clip_gradients_by_norm(inner, clip_norm)


def multitask(home, inner, step):
    return home.MultitaskOptimizerWrapper(inner)


ROWS = {"matrix": [1], "table": [1], "cube": [1, 2], "vector": [0]}
WAYS = {
    "average": averaged,
    "average-counted": functools.partial(averaged, average_decay=0.9, counted=True),
    "variables": functools.partial(clipped, dims=ROWS),
    "variables-first-dimension": functools.partial(
        clipped, dims={"matrix": [0], "table": [0, 1], "bias": [0]}, use_locking=True
    ),
    "variables-colocated": functools.partial(
        clipped, dims={"table": [1], "matrix": [1]}, colocate_clip_ops_with_vars=True
    ),
    "by-norm": functools.partial(by_norm, clip_norm=1.5),
    "multitask": multitask,
}


def without_duplicates(grads_and_vars):
    """Sums rows with equal ids, like TensorFlow's `_deduplicate_indexed_slices`."""
    changed = []
    for grad, variable in grads_and_vars:
        if isinstance(grad, tf.IndexedSlices):
            ids, positions = tf.unique(grad.indices)
            values = tf.math.unsorted_segment_sum(grad.values, positions, tf.size(ids))
            grad = tf.IndexedSlices(values, ids, grad.dense_shape)
        changed.append((grad, variable))
    return changed


def make(home, way, inner, change=list):
    return lambda step: Bare(WAYS[way](home, INNER[inner](), step), change)


def train_both(original, ours, problem, use_resource):
    trainings = [FedTraining(each, problem, use_resource) for each in (original, ours)]
    assert list(trainings[1].variables) == list(trainings[0].variables)
    values = [training.train(0, STEPS) for training in trainings]
    assert_same(values[1], values[0])
    return values[0]


def every_cell():
    """Yields all combinations of `WAYS`, `INNER` and `KINDS`.

    Without --full, only one combination of each way runs.
    """
    for turn, way in enumerate(WAYS):
        for number, inner in enumerate(INNER):
            for kind in KINDS:
                mine = (number - turn) % len(INNER) == 0 and (turn % 2 == 0) == (kind == "ref")
                yield pytest.param(way, inner, kind, marks=() if mine else FULL)


@pytest.mark.parametrize("way, inner, kind", every_cell())
def test_every_variable_after_every_step(way, inner, kind, full):
    original, ours = make(contrib, way, inner), make(legacy_opt, way, inner)
    if way.startswith("variables"):  # the original clips a row once for each repetition of its id
        original = make(contrib, way, inner, without_duplicates)
    # SGD subtracts rows with equal ids one by one, which rounds differently from subtracting their
    # sum. The original gets sums, so ours must also get sums.
    if way.startswith("variables") and inner == "SGD":
        ours = make(legacy_opt, way, inner, without_duplicates)
    problem = problem_for(way == "multitask", only=() if full else SOME)
    train_both(original, ours, problem, KINDS[kind])


@pytest.mark.parametrize(
    "decay", [lambda: tf.constant(0.9, tf.float64), pytest.param(lambda: 0.9, marks=FULL)]
)
def test_float64(decay):
    def made(home):
        def nested(step):
            inner = by_norm(home, INNER["Momentum"](), step, 1.5)
            return Bare(home.MovingAverageOptimizer(inner, decay()))

        return nested

    train_both(made(contrib), made(legacy_opt), problem_for(dtype="float64"), True)


@pytest.mark.parametrize(
    "way, kind",
    [
        ("average-counted", "ref"),
        pytest.param("variables", "resource", marks=FULL),  # this wrapper creates no variables
        pytest.param("multitask", "ref", marks=FULL),
    ],
)
def test_each_continues_from_checkpoints_of_the_other(way, kind, tmp_path):
    dense = ("matrix", "vector", "scalar")
    dims = {"matrix": [1], "vector": [0]}
    made = functools.partial(clipped, dims=dims) if way == "variables" else WAYS[way]
    problem = problems.everything("float32", dense, STEPS)
    trainings, saved, later = [], [], []
    for number, home in enumerate((contrib, legacy_opt)):
        training = FedTraining(
            lambda step: Bare(made(home, INNER["Adam"](), step)),  # noqa: B023
            problem,
            KINDS[kind],
        )
        training.train(0, HALF)
        saved.append(training.save(str(tmp_path / str(number))))
        later.append(training.train(HALF, STEPS))
        trainings.append(training)
    for path, training, expected in zip(saved[::-1], trainings, later[::-1]):
        training.restore(path)
        assert_same(training.train(HALF, STEPS), expected)


NESTS = {
    "average(variables)": ("average-counted", "variables"),
    "variables(average)": ("variables", "average-counted"),
    "by-norm(variables)": ("by-norm", "variables"),
    "average(by-norm)": ("average-counted", "by-norm"),
    "by-norm(by-norm)": ("by-norm", "by-norm"),
}


@pytest.mark.parametrize(
    "nest",
    [pytest.param(nest, marks=() if nest == "average(variables)" else FULL) for nest in NESTS],
)
def test_ours_nested_in_contribs_and_contribs_in_ours(nest, full):
    outer, inner = NESTS[nest]
    problem = problem_for()
    homes = [(contrib, legacy_opt), (legacy_opt, contrib)]
    if full:  # both wrappers from the same library
        homes += [(contrib, contrib), (legacy_opt, legacy_opt)]
    results = []
    for outside, inside in homes:

        def nested(step):
            momentum = INNER["Momentum"]()
            within = WAYS[inner](inside, momentum, step)  # noqa: B023
            if inside is contrib and not hasattr(within, "_name"):  # noqa: B023
                within._name = "without"
            return Bare(WAYS[outer](outside, within, step), without_duplicates)  # noqa: B023

        training = FedTraining(nested, problem, True)
        results.append((list(training.variables), training.train(0, STEPS)))
    for names, values in results[1:]:
        assert names == results[0][0]
        assert_same(values, results[0][1])


def test_multitask_around_optimizers_of_ours_and_of_contrib():
    def made(home, inside):
        return lambda step: Bare(home.MultitaskOptimizerWrapper(inside.LazyAdamOptimizer(0.1)))

    crossed = made(contrib, legacy_opt), made(legacy_opt, contrib)
    train_both(*crossed, problem_for(zeros=True), True)


@pytest.mark.full
def test_multitask_around_contribs_nadam():
    def made(home):
        return lambda step: Bare(home.MultitaskOptimizerWrapper(contrib.NadamOptimizer(0.1)))

    train_both(made(contrib), made(legacy_opt), problem_for(zeros=True), True)


@pytest.mark.parametrize("kind", [pytest.param("ref", marks=FULL), "resource"])
def test_clip_gradients_by_global_norm(kind):
    problem = problems.everything("float32", ("matrix", "vector", "scalar"), STEPS)
    for step in problem.gradients[::2]:
        step["matrix"][...] = 0

    def made(home):
        def with_clipping(step):
            def change(pairs):
                return home.clip_gradients_by_global_norm(pairs, 0.5)[0]

            return Bare(home.MultitaskOptimizerWrapper(INNER["Adam"]()), change)

        return with_clipping

    train_both(made(contrib), made(legacy_opt), problem, KINDS[kind])


def test_the_returned_norm_and_the_default():
    with tf.Graph().as_default():
        grads = [tf.constant([30.0, 40.0]), None, tf.zeros([3]), tf.constant([[0.1]])]
        pairs = list(zip(grads, "abcd"))
        results = [home.clip_gradients_by_global_norm(pairs) for home in (contrib, legacy_opt)]
        assert [variable for _, variable in results[1][0]] == list("abcd")
        assert results[1][0][1][0] is None
        with v1.Session() as sess:
            for theirs, ours in zip(*(flat(result) for result in results)):
                assert np.array_equal(*sess.run([theirs, ours]))


def flat(result):
    pairs, norm = result
    return [grad for grad, _ in pairs if grad is not None] + [norm]


def test_the_class_name_of_clip_gradients_by_norm():
    adam = v1.train.AdamOptimizer(0.1)
    original = tf.contrib.estimator.clip_gradients_by_norm(adam, 1.0)
    ours = legacy_opt.clip_gradients_by_norm(adam, 1.0)
    assert ours.get_name() == original.get_name() == "ClipByNormAdam"


class Averaging:
    """A training that has a plain Saver, and a Saver that swaps variables and their averages."""

    def __init__(self, home, use_resource, partitioned, chosen):
        with tf.Graph().as_default() as graph:
            partitioner = v1.fixed_size_partitioner(2) if partitioned else None
            with v1.variable_scope("net", partitioner=partitioner, use_resource=use_resource):
                weight = v1.get_variable("weight", [4, 3])
                bias = v1.get_variable("bias", initializer=tf.zeros([3]), partitioner=None)
            weight = tf.convert_to_tensor(weight)
            loss = tf.reduce_sum(tf.square(tf.matmul(tf.ones([1, 4]), weight) + bias - 1.0))
            step = v1.train.get_or_create_global_step()
            optimizer = home.MovingAverageOptimizer(INNER["Momentum"](), 0.8)
            self.train_op = optimizer.minimize(loss, step)
            self.variables = variables_by_name()
            self.averaged = v1.get_collection(v1.GraphKeys.MOVING_AVERAGE_VARIABLES)
            self.plain = v1.train.Saver()
            var_list = None
            if chosen == "named" and partitioned:  # partitions share one name in checkpoints
                var_list = v1.global_variables()[::-1]
            elif chosen == "named":
                var_list = {each.op.name: each for each in v1.global_variables()}
            self.swapping = optimizer.swapping_saver(var_list, name="swap", max_to_keep=3)
            initializer = v1.global_variables_initializer()
        self.session = v1.Session(graph=graph)
        self.session.run(initializer)

    def train(self, steps):
        for _ in range(steps):
            self.session.run(self.train_op)

    def save(self, path):
        with self.session.graph.as_default():
            return self.swapping.save(self.session, path)

    def restore(self, saver, path):
        with self.session.graph.as_default():
            saver.restore(self.session, path)

    def values(self):
        return self.session.run(self.variables)


def contents(path):
    reader = v1.train.NewCheckpointReader(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}


@pytest.mark.pairwise(kind=list(KINDS), partitioned=[False, True], chosen=["all", "named"])
def test_swapping_savers_restore_each_others_files(kind, partitioned, chosen, tmp_path):
    homes = (contrib, legacy_opt)
    both = [Averaging(home, KINDS[kind], partitioned, chosen) for home in homes]
    assert list(both[0].variables) == list(both[1].variables)
    assert [v.name for v in both[0].averaged] == [v.name for v in both[1].averaged]
    for saving, loading in both, both[::-1]:
        check_handing_over(saving, loading, tmp_path)


def check_handing_over(saving, loading, tmp_path):
    saving.train(3)
    path = saving.save(str(tmp_path / "model"))
    loading.restore(loading.swapping, path)
    assert_same([loading.values()], [saving.values()])
    again = loading.save(str(tmp_path / "again"))
    assert_same([contents(again)], [contents(path)])
    # The file has the averages under the variables' names, so a plain Saver restores averages.
    loading.restore(loading.plain, path)
    before, after = saving.values(), loading.values()
    for name, value in before.items():
        if name.endswith("/ExponentialMovingAverage"):
            assert np.array_equal(after[name.rsplit("/", 1)[0]], value)
            assert not np.array_equal(before[name.rsplit("/", 1)[0]], value)
