"""Tests MultiOptimizer's routes from variables to optimizers, and its errors."""

import functools
import re

import pytest
import tensorflow as tf

from legacy_opt import MultiOptimizer

v1 = tf.compat.v1


def some_variables():
    """Creates a partitioned table in the collection "sparse", and the variables of a layer."""
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


def test_slots_and_variables_of_all_optimizers():
    with tf.Graph().as_default():
        table, deep = some_variables()
        ftrl, adam = v1.train.FtrlOptimizer(0.1), v1.train.AdamOptimizer(0.1)
        multi = MultiOptimizer([(ftrl, table)], default=adam)
        multi.minimize(tf.add_n([tf.reduce_sum(each) for each in list(table) + deep]))
        assert ftrl.get_slot_names() == ["accum", "linear"] and adam.get_slot_names() == ["m", "v"]
        assert multi.get_slot_names() == ["accum", "linear", "m", "v"]
        for each in table:
            assert multi.get_slot(each, "linear") is ftrl.get_slot(each, "linear") is not None
            assert multi.get_slot(each, "m") is None
        names = [variable.op.name for variable in multi.variables()]
        assert "wide/table/part_1/Ftrl" in names and "deep/bias/Adam_1" in names


def test_two_python_objects_of_one_graph_variable():
    with tf.Graph().as_default():
        w = v1.get_variable("w", [])
        v1.add_to_collection("some", v1.Variable.from_proto(w.to_proto()))
        for which in MultiOptimizer.collection("some"), v1.get_collection("some"):
            optimizer = v1.train.AdamOptimizer(0.1)
            assert MultiOptimizer([(optimizer, which)]).route([w]) == [(optimizer, [w])]


# --- Errors.


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
    "no expression": (lambda: [(sgd(), "a(")], ValueError, "not a valid regular expression"),
    "an empty list": (lambda: [(sgd(), [])], ValueError, "list of variables is empty"),
    "a list of names": (lambda: [(sgd(), ["a"])], TypeError, "'a' is not a variable"),
    "a number": (lambda: [(sgd(), 3)], TypeError, "which must be a regular expression, a list"),
    "None": (lambda: [(sgd(), None)], TypeError, "which must be a regular expression"),
    "a layer": (lambda: [(sgd(), tf.Module())], TypeError, "its trainable_variables"),
    "replicas inside": (lambda: [(SYNC(sgd()), "a")], ValueError, "Put it around"),
    "one in two wrappers": (shared, ValueError, "nested in several of its inner"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_routes_that_are_refused(what):
    routes, error, message = REFUSED[what]
    with pytest.raises(error, match=message):
        MultiOptimizer(routes())


def test_other_arguments_that_are_refused():
    with pytest.raises(TypeError, match="name must be a string"):
        MultiOptimizer([(sgd(), "a")], name=3)
    with pytest.raises(TypeError, match="wraps tf.compat.v1.train.Optimizer instances, got 'a'"):
        MultiOptimizer([(sgd(), "a")], default="a")
    with pytest.raises(TypeError, match="must be a string"):
        MultiOptimizer.collection(3)


def test_all_variables_without_a_route_are_named():
    with tf.Graph().as_default():
        table, deep = some_variables()
        loss = tf.add_n([tf.reduce_sum(each) for each in list(table) + deep])
        routes = [(sgd(), "wide"), (v1.train.AdamOptimizer(0.1), list(table)[0]), (sgd(), "eep")]
        with pytest.raises(ValueError) as caught:
            MultiOptimizer(routes).minimize(loss)
        text = str(caught.value)
        assert "No route matches 'deep/kernel:0', 'deep/bias:0'" in text
        assert "no variable matches GradientDescentOptimizer ('eep')" in text
        assert (
            "Several optimizers match 'wide/table/part_0:0': GradientDescentOptimizer ('wide') and "
            "AdamOptimizer (a list of variables)."
        ) in text
        assert "part_1" not in text and not v1.get_collection(v1.GraphKeys.TRAIN_OP)


def test_a_variable_given_twice():
    with tf.Graph().as_default():
        _, (kernel, _) = some_variables()
        multi = MultiOptimizer([(sgd(), "deep")])
        pairs = multi.compute_gradients(tf.reduce_sum(kernel), [kernel])
        with pytest.raises(ValueError, match="Listed twice: 'deep/kernel:0'"):
            multi.apply_gradients(pairs * 2)


def test_no_gradients_at_all():
    with tf.Graph().as_default():
        _, (kernel, bias) = some_variables()
        multi = MultiOptimizer([(sgd(), "deep")])
        with pytest.raises(ValueError, match="no variable has a gradient.*'deep/bias:0'"):
            multi.apply_gradients([(None, kernel), (None, bias)])
        with pytest.raises(ValueError, match="no variable has a gradient. The list is empty"):
            multi.apply_gradients([])


def test_a_wrong_global_step():
    w = tf.Variable(1.0)
    with pytest.raises(TypeError, match="global_step must be a variable.*got 3"):
        MultiOptimizer([(sgd(), [w])]).apply_gradients([(tf.constant(1.0), w)], global_step=3)
    assert w.numpy() == 1.0


def test_a_route_without_variables_warns():
    with tf.Graph().as_default():
        _, deep = some_variables()
        multi = MultiOptimizer([(sgd(), "deeep")], default=v1.train.AdamOptimizer(0.1))
        with pytest.warns(UserWarning, match=r"no variable matches Gradient.*\('deeep'\).*AdamOp"):
            multi.route(deep)


def test_collections_are_refused_in_eager_execution():
    w = tf.Variable(1.0)
    multi = MultiOptimizer([(sgd(), MultiOptimizer.collection("some"))])
    with pytest.raises(ValueError, match="collections exist in graphs only"):
        multi.apply_gradients([(tf.constant(1.0), w)])


def test_a_route_function_that_returns_a_tensor():
    w = tf.Variable(1.0)
    with pytest.raises(TypeError, match="must return True or False"):
        MultiOptimizer([(sgd(), lambda variable: variable)]).route([w])
