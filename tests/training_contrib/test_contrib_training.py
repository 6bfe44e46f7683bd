"""Tests on TensorFlow 1.15: our training helpers build the same graphs as those of `tf.contrib`.

The only difference is that our `create_train_op` adds checks for NaN and infinity by default. Each
library builds the same model into a separate graph. The tests compare the collections and the nodes
of the two graphs: the order of the nodes, their names, inputs, attributes and seeds. Equal graphs
compute equal values, so without --full only a few graphs are run. If two graphs are run, the tests
also compare losses, summaries and final variables.
"""

import inspect
from types import SimpleNamespace

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.contrib import layers
from tensorflow.contrib import training as contrib_training
from tensorflow.contrib.layers.python.layers import optimizers as contrib_optimizers

import legacy_opt
from tests.support import running

pytestmark = pytest.mark.contrib

v1 = tf.compat.v1
STEPS = 3
CONTRIB = SimpleNamespace(
    optimize_loss=layers.optimize_loss,
    adaptive_clipping_fn=contrib_optimizers.adaptive_clipping_fn,
    create_train_op=contrib_training.create_train_op,
    add_gradients_summaries=contrib_training.add_gradients_summaries,
    clip_gradient_norms_fn=contrib_training.clip_gradient_norms_fn,
    multiply_gradients=contrib_training.multiply_gradients,
)


class Model:
    """A small model with dense and sparse gradients, a variable without gradient, and an update op.

    No operation of the backward pass reads a variable. If an operation read a ref variable, the
    gradients would depend on whether the read comes before or after the update.
    """

    def __init__(self, use_resource):
        def variable(name, *shape, **options):
            start = v1.constant_initializer(0.5)
            return v1.get_variable(name, shape, None, start, use_resource=use_resource, **options)

        self.features = v1.placeholder(tf.float32, [None, 3])
        self.ids = v1.placeholder(tf.int64, [None])
        with v1.variable_scope("tower"):
            self.weights = variable("weights", 3, 1)
        self.table = variable("table", 5, 1)
        self.bias = variable("bias", 1)
        self.unused = variable("unused", 2)
        self.seen = variable("seen", trainable=False)
        output = tf.matmul(self.features, self.weights) + tf.gather(self.table, self.ids)
        self.loss = tf.reduce_mean(tf.square(output + self.bias - 1.0), name="loss")
        self.update = v1.assign_add(self.seen, 1.0).op
        v1.add_to_collection(v1.GraphKeys.UPDATE_OPS, self.update)

    def feed(self, step):
        random = np.random.RandomState(step)
        return {self.features: random.randn(6, 3), self.ids: random.randint(0, 5, 6)}


def sgd(*arguments):
    return v1.train.GradientDescentOptimizer(*arguments or (0.1,))


def halved(rate, step):
    return v1.train.exponential_decay(rate, step, 3, 0.5)


def other_step():
    return v1.get_variable("other_step", [], tf.int32, v1.zeros_initializer(), trainable=False)


# {case: function of `lib` and `model` that returns arguments of optimize_loss}. `lib` is legacy_opt
# or CONTRIB.
OPTIMIZE = {
    "string": lambda lib, model: {},
    "Adagrad": lambda lib, model: {"optimizer": "Adagrad"},
    "Adam": lambda lib, model: {"optimizer": "Adam"},
    "Ftrl": lambda lib, model: {"optimizer": "Ftrl"},
    "Momentum": lambda lib, model: {"optimizer": "Momentum"},
    "RMSProp": lambda lib, model: {"optimizer": "RMSProp"},
    "class": lambda lib, model: {"optimizer": v1.train.AdamOptimizer},
    "one argument": lambda lib, model: {"optimizer": sgd},
    "no argument": lambda lib, model: {"optimizer": sgd, "learning_rate": None},
    "instance": lambda lib, model: {"optimizer": sgd(0.2)},
    "instance, no rate": lambda lib, model: {"optimizer": sgd(0.2), "learning_rate": None},
    "ours": lambda lib, model: {"optimizer": legacy_opt.LazyAdamOptimizer},
    "rate of zero": lambda lib, model: {"learning_rate": 0.0},
    "rate tensor": lambda lib, model: {"learning_rate": tf.constant(0.3)},
    "decay": lambda lib, model: {"learning_rate_decay_fn": halved},
    "decay of a tensor": lambda lib, model: {
        "learning_rate_decay_fn": halved,
        "learning_rate": tf.constant(0.3),
    },
    "decay without rate": lambda lib, model: {
        "optimizer": sgd,
        "learning_rate": None,
        "learning_rate_decay_fn": halved,
    },
    "other step": lambda lib, model: {"global_step": other_step()},
    "step is not incremented": lambda lib, model: {"increment_global_step": False},
    "step tensor is not incremented": lambda lib, model: {
        "global_step": tf.constant(3, tf.int64),
        "increment_global_step": False,
        "learning_rate_decay_fn": halved,
    },
    "noise": lambda lib, model: {"gradient_noise_scale": 0.1},
    "multiplied by name": lambda lib, model: {
        "gradient_multipliers": {"tower/weights:0": 2.0, "table:0": 0.3, "unused:0": 7.0}
    },
    "multiplied by variable": lambda lib, model: {
        "gradient_multipliers": {model.weights: 0.3, model.table: 3, model.bias: 2}
    },
    "multiplied by tensors": lambda lib, model: {
        "gradient_multipliers": {model.weights: tf.constant(0.3), model.table: np.float32(3)}
    },
    "clipped by a number": lambda lib, model: {"clip_gradients": 0.5},
    "clipped by a function": lambda lib, model: {
        "clip_gradients": lambda pairs: [pair for pair in pairs if "table" not in pair[1].name]
    },
    "clipped adaptively": lambda lib, model: {"clip_gradients": lib.adaptive_clipping_fn()},
    "clipped adaptively, all": lambda lib, model: {
        "clip_gradients": lib.adaptive_clipping_fn(
            std_factor=0.5,
            decay=0.8,
            static_max_norm=0.7,
            global_step=v1.train.get_global_step(),
            report_summary=True,
            epsilon=1e-4,
            name="Usual",
        )
    },
    "clipped adaptively, tensors": lambda lib, model: {
        "clip_gradients": lib.adaptive_clipping_fn(
            tf.constant(0.1), tf.constant(0.9), tf.constant(0.4)
        )
    },
    "no update ops": lambda lib, model: {"update_ops": []},
    "other update op": lambda lib, model: {"update_ops": [v1.assign_add(model.seen, 5.0).op]},
    "some variables": lambda lib, model: {"variables": [model.table, model.bias]},
    "multiplied, some not trained": lambda lib, model: {
        "variables": [model.table],
        "gradient_multipliers": {"tower/weights:0": 2.0, model.bias: 3.0, "table:0": 0.3},
    },
    "named": lambda lib, model: {"name": "Step"},
    "in the current scope": lambda lib, model: {
        "name": "",
        "clip_gradients": lib.adaptive_clipping_fn(name=""),
    },
    "no summaries": lambda lib, model: {"summaries": [], "learning_rate_decay_fn": halved},
    "all summaries": lambda lib, model: {
        "summaries": list(legacy_opt.OPTIMIZER_SUMMARIES),
        "learning_rate_decay_fn": halved,
        "clip_gradients": 0.5,
    },
    "summary of gradients": lambda lib, model: {"summaries": ["gradients"]},
    "summary of norms": lambda lib, model: {"summaries": ["gradient_norm"]},
    "summary of the global norm": lambda lib, model: {"summaries": ["global_gradient_norm"]},
    "colocated": lambda lib, model: {"colocate_gradients_with_ops": True},
    "several": lambda lib, model: {
        "global_step": other_step(),
        "learning_rate": tf.constant(0.3),
        "optimizer": sgd,
        "gradient_multipliers": {model.weights: 0.3, model.table: np.float32(3)},
        "clip_gradients": 0.5,
        "update_ops": [v1.assign_add(model.seen, 5.0).op],
        "variables": [model.table, model.weights],
        "name": "Step",
        "summaries": ["gradients"],
        "increment_global_step": False,
    },
    "everything": lambda lib, model: {
        "optimizer": legacy_opt.LAMBOptimizer,
        "gradient_noise_scale": 0.01,
        "gradient_multipliers": {"bias:0": 2.0},
        "clip_gradients": lib.adaptive_clipping_fn(report_summary=True),
        "learning_rate_decay_fn": halved,
        "summaries": list(legacy_opt.OPTIMIZER_SUMMARIES),
        "colocate_gradients_with_ops": True,
    },
}


def optimize_loss(lib, model, arguments):
    arguments = dict({"global_step": None, "learning_rate": 0.1, "optimizer": "SGD"}, **arguments)
    return lib.optimize_loss(model.loss, **arguments)


def multiplied(lib):
    multipliers = {"tower/weights": 0.3, "table": 2.5}
    return lambda pairs: lib.multiply_gradients(pairs, multipliers)


# {case: function that returns arguments of create_train_op}
TRAIN_OP = {
    "defaults": lambda lib, model: {},
    "ours": lambda lib, model: {"optimizer": legacy_opt.DiffGradOptimizer(0.1)},
    "no step": lambda lib, model: {"global_step": None},
    "other step": lambda lib, model: {"global_step": other_step()},
    "no update ops": lambda lib, model: {"update_ops": []},
    "more update ops": lambda lib, model: {
        "update_ops": [model.update, v1.assign_add(model.unused, [0.5, 0.5]).op]
    },
    "some variables": lambda lib, model: {"variables_to_train": [model.bias, model.table]},
    "clipped": lambda lib, model: {"transform_grads_fn": lib.clip_gradient_norms_fn(0.1)},
    "multiplied": lambda lib, model: {"transform_grads_fn": multiplied(lib)},
    "summaries": lambda lib, model: {"summarize_gradients": True},
    "gated": lambda lib, model: {"gate_gradients": v1.train.Optimizer.GATE_GRAPH},
    "aggregated": lambda lib, model: {"aggregation_method": v1.AggregationMethod.EXPERIMENTAL_TREE},
    "colocated": lambda lib, model: {"colocate_gradients_with_ops": True},
    "unchecked": lambda lib, model: {"check_numerics": False},
    "everything": lambda lib, model: {
        "optimizer": sgd(0.2),
        "transform_grads_fn": multiplied(lib),
        "summarize_gradients": True,
        "gate_gradients": v1.train.Optimizer.GATE_GRAPH,
        "aggregation_method": v1.AggregationMethod.EXPERIMENTAL_TREE,
        "colocate_gradients_with_ops": True,
    },
}


def create_train_op(lib, model, arguments):
    if lib is legacy_opt:  # in tf.contrib, the default (True) checks only the loss
        arguments = dict({"check_numerics": "loss"}, **arguments)
    return create_train_op_by_default(lib, model, arguments)


def create_train_op_by_default(lib, model, arguments):
    return lib.create_train_op(model.loss, **dict({"optimizer": sgd()}, **arguments))


def node(definition):
    """Returns a node's contents. Control inputs are sorted, because their order has no meaning."""
    data = [name for name in definition.input if not name.startswith("^")]
    control = sorted(name for name in definition.input if name.startswith("^"))
    attributes = {key: value.SerializeToString() for key, value in definition.attr.items()}
    return definition.name, definition.op, definition.device, data, control, attributes


def names(items):
    return [getattr(item, "name", None) or str(item) for item in items]


def built(lib, call, make_arguments, use_resource, runs=False):
    """Builds a training step into a new graph; returns the values that `assert_same` compares."""
    with tf.Graph().as_default() as graph:
        v1.set_random_seed(3)
        model = Model(use_resource)
        v1.train.get_or_create_global_step()
        train_op = call(lib, model, make_arguments(lib, model))
        collections = {
            key: names(graph.get_collection(key))
            for key in graph.get_all_collection_keys()
            if not isinstance(key, tuple)  # the variable store's key is a tuple
        }
        nodes = [node(definition) for definition in graph.as_graph_def().node]
        return nodes, collections, train_op.name, trained(model, train_op) if runs else None


def trained(model, train_op):
    """Returns the loss and the summaries of each training step, and the final variables."""
    summaries = v1.summary.merge_all()
    fetches = [train_op] if summaries is None else [train_op, summaries]
    losses, written = [], []
    with running.started(config=running.AS_WRITTEN) as session:
        for step in range(STEPS):
            loss, *texts = session.run(fetches, model.feed(step))
            losses.append(loss)
            for text in texts:
                values = v1.Summary.FromString(text).value
                written.append([(value.tag, value.SerializeToString()) for value in values])
        variables = {variable.op.name: variable for variable in v1.global_variables()}
        return np.array(losses), written, session.run(variables)


def assert_same(ours, original):
    assert [each[0] for each in ours[0]] == [each[0] for each in original[0]]
    for one, other in zip(ours[0], original[0]):
        assert one == other
    assert ours[1:3] == original[1:3]
    if original[3] is None:
        return
    (losses, written, values), (original_losses, original_written, expected) = ours[3], original[3]
    assert np.all(np.isfinite(original_losses)) and len(set(original_losses)) == STEPS
    assert np.array_equal(losses, original_losses) and written == original_written
    assert list(values) == list(expected)
    for name, value in expected.items():
        assert np.array_equal(values[name], value), name


# Without --full, only these cases run. Together they use every argument of the helpers.
DAILY = {"string", "Momentum", "no argument", "decay without rate"}
DAILY |= {"step tensor is not incremented"}
DAILY |= {"clipped by a function", "clipped adaptively, all", "multiplied, some not trained"}
DAILY |= {"in the current scope", "no summaries", "several", "everything", "defaults"}
DAILY |= {"more update ops", "no step", "some variables", "clipped", "unchecked"}
RUN = {"everything"}


def alternating(cases):
    """Parametrizes a test with cases. Cases in DAILY use ref and resource variables in turn."""
    cells = []
    for number, name in enumerate(sorted(cases, key=lambda name: name in DAILY)):
        for use_resource, kind in (False, "ref"), (True, "resource"):
            daily = name in DAILY and use_resource == bool(number % 2)
            marks = () if daily else pytest.mark.full
            cells.append(pytest.param(name, use_resource, id=name + "-" + kind, marks=marks))
    return pytest.mark.parametrize("name, use_resource", cells)


@alternating(OPTIMIZE)
def test_optimize_loss(name, use_resource, full):
    arguments = optimize_loss, OPTIMIZE[name], use_resource, full or name in RUN
    assert_same(built(legacy_opt, *arguments), built(CONTRIB, *arguments))


@alternating(TRAIN_OP)
@pytest.mark.filterwarnings("ignore:create_train_op runs only the update_ops")
def test_create_train_op(name, use_resource, full):
    arguments = create_train_op, TRAIN_OP[name], use_resource, full or name in RUN
    assert_same(built(legacy_opt, *arguments), built(CONTRIB, *arguments))


@pytest.mark.parametrize("name, use_resource", [("everything", False), ("clipped", True)])
def test_create_train_op_with_its_own_checks(name, use_resource):
    """By default, our graph and the original differ only in checks. All values are equal."""
    arguments = create_train_op_by_default, TRAIN_OP[name], use_resource, True
    ours, original = built(legacy_opt, *arguments), built(CONTRIB, *arguments)
    kinds = [{each[0]: each[1] for each in nodes} for nodes in (ours[0], original[0])]
    assert kinds[1].pop("train_op/CheckNumerics") == "CheckNumerics"
    added = set(kinds[0].items()) - set(kinds[1].items())
    assert {kind for _, kind in added} == {"CheckNumerics", "Identity"}
    assert all(name.startswith("check_numerics/") for name, _ in added)
    assert set(kinds[1].items()) <= set(kinds[0].items())
    assert_same(((), *ours[1:]), ((), *original[1:]))


@pytest.mark.full
def test_the_cases_differ_from_one_another():
    # If two cases built equal graphs, one of the cases would be redundant.
    for cases, call in (OPTIMIZE, optimize_loss), (TRAIN_OP, create_train_op):
        seen = {}
        for name in cases:
            with tf.Graph().as_default() as graph:
                model = Model(True)
                v1.train.get_or_create_global_step()
                call(CONTRIB, model, cases[name](CONTRIB, model))
                nodes = repr([node(each) for each in graph.as_graph_def().node])
            assert nodes not in seen, (name, seen[nodes])
            seen[nodes] = name


def test_every_argument_is_in_a_case():
    for cases, function in (OPTIMIZE, layers.optimize_loss), (TRAIN_OP, CONTRIB.create_train_op):
        with tf.Graph().as_default(), v1.variable_scope("", reuse=v1.AUTO_REUSE):
            model = Model(True)
            v1.train.get_or_create_global_step()
            given = {key for name in DAILY & set(cases) for key in cases[name](CONTRIB, model)}
        assert given | {"loss", "total_loss"} >= set(inspect.signature(function).parameters)


def test_two_steps_in_a_graph_and_a_graph_without_a_global_step():
    def twice(lib, model, _):
        optimize_loss(lib, model, {"increment_global_step": False, "variables": [model.table]})
        return optimize_loss(lib, model, {"variables": [model.weights]})

    assert_same(*(built(lib, twice, OPTIMIZE["string"], True) for lib in (legacy_opt, CONTRIB)))
    graphs = []
    for lib in legacy_opt, CONTRIB:
        with tf.Graph().as_default() as graph:
            optimize_loss(lib, Model(False), {})
            graphs.append([node(each) for each in graph.as_graph_def().node])
    assert graphs[0] == graphs[1]


def test_add_gradients_summaries():
    def call(lib, model, _):
        pairs = sgd().compute_gradients(model.loss)
        assert len(lib.add_gradients_summaries(pairs)) == 6
        return tf.identity(model.loss)

    assert_same(*(built(lib, call, OPTIMIZE["string"], True) for lib in (legacy_opt, CONTRIB)))


def arguments_of(function):
    """Returns parameters without annotations. Omits `check_numerics` of our `optimize_loss`."""
    parameters = dict(inspect.signature(function).parameters)
    if function is legacy_opt.optimize_loss:
        del parameters["check_numerics"]
    return [each.replace(annotation=each.empty) for each in parameters.values()]


def test_names_arguments_and_defaults():
    for home in contrib_optimizers, contrib_training:
        for name in set(vars(home)) & set(legacy_opt.__all__) - {"OPTIMIZER_CLS_NAMES"}:
            original, ours = getattr(home, name), getattr(legacy_opt, name)
            if callable(original):
                assert arguments_of(ours) == arguments_of(original), name
            else:
                assert ours == original
    for name, original in layers.OPTIMIZER_CLS_NAMES.items():
        ours = legacy_opt.OPTIMIZER_CLS_NAMES[name]
        assert ours is original or name == "Momentum"
