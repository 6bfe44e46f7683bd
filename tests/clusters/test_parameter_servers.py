"""Tests of TF1 parameter servers: placement of slots, bytes sent, and independence of servers."""

import contextlib
import threading

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt import AdagradDecayOptimizer, AdagradDecayOptimizerV2, DecoupledWeightDecayExtension
from tests.support.cases import CASES, one_of_each_class
from tests.support.processes.local_cluster import SECONDS, LocalCluster, bytes_between_servers
from tests.support.processes.programs import wait_until
from tests.support.running import REF_AND_RESOURCE
from tests.support.threads import in_threads

v1 = tf.compat.v1

MAKERS = {name: CASES[name].make for name in one_of_each_class()}
# Each `part` is a quarter of the optimizer classes, because a test of all classes takes long.
PARTS = pytest.mark.in_turn(part=range(4), use_resource=[False, True])
# Each of these optimizers has its powers of beta on one server, but both servers read the powers.
BETA_POWERS = [
    "LazyAdam",
    "Nadam",
    "AdaMax",
    "DiffGrad",
]


@pytest.fixture(scope="module")
def cluster():
    return LocalCluster(ps=2, worker=2)


def classes_of(part):
    return list(MAKERS)[part::4]


def server_of(item):
    """Returns the number of the parameter server on which a variable is placed."""
    device = tf.DeviceSpec.from_string(item.device)
    assert device.job == "ps", item
    return device.task


def scope_of(name, use_resource):
    """Returns a variable scope for one test.

    Different tests need different names, because servers keep their variables between tests.
    """
    return v1.variable_scope("".join(filter(str.isalnum, f"{name}{use_resource}")))


def make_variable(name, shape, use_resource):
    values = np.linspace(0.5, 1.5, int(np.prod(shape)), dtype=np.float32).reshape(shape)
    initializer = v1.constant_initializer(values)
    return v1.get_variable(name, shape, tf.float32, initializer, use_resource=use_resource)


def make_step(use_resource, start=0):
    start = v1.constant_initializer(start)
    return v1.get_variable("step", [], tf.int64, start, trainable=False, use_resource=use_resource)


def waits_for_gradients(name):
    """Returns whether an optimizer waits for all gradients before it applies weight decay."""
    return issubclass(CASES[name].optimizer, DecoupledWeightDecayExtension)


def apply_behind_gate(name, gate, use_resource):
    """Applies gradients to variables of both servers. Gradients on server 1 wait for the gate.

    The gate is an operation that waits until the test puts a value into a queue. If the optimizer
    `waits_for_gradients`, the gradients on server 0 wait for the gate, too.

    Returns:
      The train op, and a dict from the number of a server to the variables on this server.
    """
    with scope_of(name, use_resource):
        step = make_step(use_resource, start=1000)  # decays of accumulators are due at this step
        names = ["matrix", "another_matrix", "table", "another_table"]
        variables = [make_variable(each, [5, 3], use_resource) for each in names]
        optimizer, pairs = CASES[name].make(step), []
        for variable in variables:
            gated = server_of(variable) == 1 or waits_for_gradients(name)
            sparse = "table" in variable.op.name
            with tf.control_dependencies([gate] if gated else []):
                gradient = tf.identity(tf.constant(0.3, shape=[2 if sparse else 5, 3]))
            if sparse:
                gradient = tf.IndexedSlices(gradient, tf.constant([1, 3]), tf.constant([5, 3]))
            pairs.append((gradient, variable))
        train_op = optimizer.apply_gradients(pairs, global_step=step)
    for variable in variables:
        for slot_name in optimizer.get_slot_names():
            slot = optimizer.get_slot(variable, slot_name)
            assert slot is None or server_of(slot) == server_of(variable), (name, slot_name)
    by_server = {0: [], 1: []}
    for variable in variables:
        by_server[server_of(variable)].append(variable)
    assert len(by_server[0]) == len(by_server[1]) == 2
    return train_op, by_server


@PARTS
def test_slots_are_on_the_server_of_their_variable_and_no_server_waits_for_another(
    cluster, use_resource, part
):
    """While the gate is closed, only variables on server 0 are trained."""
    with tf.Graph().as_default(), cluster.placing():
        gate_name = f"gate {use_resource} {part}"
        queue = tf.queue.FIFOQueue(1, [tf.bool], [[]], shared_name=gate_name)
        gate, open_gate = queue.dequeue(), queue.enqueue(True)
        train_ops, free, held = [], {}, {}
        for name in classes_of(part):
            train_op, variables = apply_behind_gate(name, gate, use_resource)
            train_ops.append(train_op)
            free.update({} if waits_for_gradients(name) else {name: variables[0]})
            held[name] = variables[1]
        assert {server_of(each) for each in v1.global_variables()} == {0, 1}
        with cluster.session() as session, cluster.session(worker=1) as other:
            session.run(v1.global_variables_initializer())
            before = other.run([free, held])
            training = threading.Thread(target=session.run, args=(train_ops,), daemon=True)
            training.start()
            wait_until(lambda: unmoved(before[0], other.run(free)) == [], SECONDS)
            assert len(unmoved(before[1], other.run(held))) == 2 * len(held)
            other.run(open_gate)
            training.join(SECONDS)
            assert not training.is_alive()
            assert unmoved(before[1], other.run(held)) == []


def unmoved(before, now):
    """Returns a list of optimizer names: one name for each variable that has not changed."""
    pairs = [(name, old, new) for name in before for old, new in zip(before[name], now[name])]
    return [name for name, old, new in pairs if np.array_equal(old, new)]


@PARTS
def test_sparse_updates_send_the_rows_of_the_batch_not_the_table(cluster, use_resource, part):
    rows, ids = 20000, np.arange(32) * 7 % 40
    with tf.Graph().as_default(), cluster.placing():
        train_ops = {}
        for name in classes_of(part):
            with scope_of("sending" + name, use_resource):
                step = make_step(use_resource)
                table = make_variable("table", [rows, 2], use_resource)
                loss = tf.reduce_sum(tf.nn.embedding_lookup(table, tf.constant(ids)) ** 2)
                train_ops[name] = CASES[name].make(step).minimize(loss, global_step=step)
        dense = v1.train.GradientDescentOptimizer(0.1).minimize(tf.reduce_sum(table**2))
        with cluster.session() as session:
            session.run(v1.global_variables_initializer())
            for name, train_op in train_ops.items():
                # A trace may lack some transfers, so the larger result of two traces is used.
                sent = max(bytes_between_servers(session, train_op) for _ in range(2))
                assert ids.size * 2 * 4 <= sent < 1000, (name, sent)
            sent = max(bytes_between_servers(session, dense) for _ in range(2))
            assert sent >= rows * 2 * 4  # this dense update sends the whole table


@REF_AND_RESOURCE
def test_the_global_step_is_the_sum_of_the_steps_of_all_workers(cluster, use_resource):
    """Each worker has its own graph and thread. Both workers train at the same time."""
    steps, graphs = (60, 40), []
    for worker in range(2):
        with contextlib.ExitStack() as scopes:
            graph = scopes.enter_context(tf.Graph().as_default())
            scopes.enter_context(cluster.placing(worker))
            scopes.enter_context(scope_of("counting", use_resource))
            step = make_step(use_resource)
            table = make_variable("table", [50, 2], use_resource)
            loss = tf.reduce_sum(tf.nn.embedding_lookup(table, [3, worker, 3, 7]) ** 2)
            train_op = MAKERS["AdagradDecay"](step).minimize(loss, global_step=step)
            graphs.append((graph, step, train_op, v1.global_variables_initializer()))

    def train(worker):
        graph, _, train_op, _ = graphs[worker]
        with graph.as_default(), cluster.session(worker) as session:
            for _ in range(steps[worker]):
                session.run(train_op)

    graph, step, _, initializer = graphs[0]
    with graph.as_default(), cluster.session() as session:
        session.run(initializer)
        workers = iter(range(2))
        in_threads(lambda: train(next(workers)), 2)
        assert session.run(step) == sum(steps)


@REF_AND_RESOURCE
def test_a_session_of_one_server_reads_the_slots_of_its_variables(cluster, use_resource):
    """A session that is connected to one server can read only the slots on this server."""
    with tf.Graph().as_default(), cluster.placing():
        with scope_of("holding", use_resource):
            step = make_step(use_resource)
            variables = [make_variable(each, [5, 3], use_resource) for each in "abcd"]
            optimizer = MAKERS["AdagradDecay"](step)
            train_op = optimizer.minimize(tf.add_n([tf.nn.l2_loss(v) for v in variables]), step)
        held = {0: [], 1: []}
        for variable in variables:
            slots = [optimizer.get_slot(variable, name) for name in optimizer.get_slot_names()]
            held[server_of(variable)] += [variable] + slots
        with cluster.session() as session:
            session.run(v1.global_variables_initializer())
            session.run(train_op)
            expected = session.run(held)
    for server in (0, 1):
        assert len(held[server]) == 2 * 3
        with tf.Graph().as_default(), v1.device(f"/job:ps/task:{server}"):
            same = [
                v1.get_variable(v.op.name, v.shape, v.dtype.base_dtype, use_resource=use_resource)
                for v in held[server]
            ]
            with cluster.session_of_server(server) as session:
                found = session.run(same)
        for value, expected_value in zip(found, expected[server]):
            np.testing.assert_array_equal(value, expected_value)


@pytest.mark.in_turn(name=BETA_POWERS, use_resource=[False, True])
def test_shared_powers_of_beta_are_read_on_every_server(cluster, name, use_resource):
    """Regression test: with resource variables, the training failed with "Cannot colocate"."""

    def build():
        with scope_of("sharing" + name, use_resource):
            step = make_step(use_resource)
            names = ["matrix", "another_matrix", "table", "another_table"]
            variables = [make_variable(each, [5, 3], use_resource) for each in names]
            looked_up = [tf.nn.embedding_lookup(each, [1, 3, 1]) for each in variables[2:]]
            loss = tf.add_n([tf.nn.l2_loss(each) for each in variables[:2] + looked_up])
            return CASES[name].make(step).minimize(loss, global_step=step), variables

    def train(session, train_op, variables):
        session.run(v1.global_variables_initializer())
        for _ in range(3):
            session.run(train_op)
        return session.run(variables)

    with tf.Graph().as_default(), cluster.placing():
        train_op, variables = build()
        assert [server_of(each) for each in variables].count(0) == 2
        with cluster.session() as session:
            found = train(session, train_op, variables)
    with tf.Graph().as_default(), v1.Session() as session:
        expected = train(session, *build())
    np.testing.assert_array_equal(found, expected)


@REF_AND_RESOURCE
@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("optimizer", [AdagradDecayOptimizer, AdagradDecayOptimizerV2])
def test_a_decay_that_another_worker_has_just_applied_is_not_repeated(
    cluster, optimizer, kind, use_resource
):
    """Worker 0 waits for its gradient after it has computed everything else.

    Meanwhile, the update of worker 1 applies the decay that is due. Worker 0 must not apply this
    decay again.
    """
    scope = "meanwhile" + optimizer.__name__ + kind
    with tf.Graph().as_default(), cluster.placing():
        with scope_of(scope, use_resource):
            step = make_step(use_resource)
            table = make_variable("table", [3, 2], use_resource)
        made = optimizer(1.0, step, 1.0, accumulator_decay_step=1, accumulator_decay_rate=0.5)
        gate, signals = (
            tf.queue.FIFOQueue(1, [tf.bool], [[]], shared_name=name + scope + str(use_resource))
            for name in ("gate", "signals")
        )
        open_gate, signal = gate.enqueue(True), signals.dequeue()
        behind_gate = gate.dequeue()

        def apply_zeros(after):
            with tf.control_dependencies(after):
                grad = tf.zeros([3, 2]) if kind == "dense" else tf.zeros([2, 2])
                grad = tf.identity(grad)
            if kind == "sparse":
                grad = tf.IndexedSlices(grad, tf.constant([0, 2]), tf.constant([3, 2]))
            return made.apply_gradients([(grad, table)], global_step=step)

        slow, quick = apply_zeros([behind_gate.op]), apply_zeros([])
        with tf.control_dependencies(operations_before(slow, behind_gate.op)):
            signal_that_it_waits = signals.enqueue(True)
        accumulator = made.get_slot(table, "accumulator")
        power = made.get_slot(table, "accumulator_decay_power")
        set_accumulator = accumulator.assign(tf.fill([3, 2], 64.0))
        with cluster.session() as session, cluster.session(worker=1) as other:
            session.run(v1.global_variables_initializer())
            session.run(set_accumulator.op)
            fetches = [slow, signal_that_it_waits]
            waiting = threading.Thread(target=session.run, args=(fetches,), daemon=True)
            waiting.start()
            other.run(signal)
            assert (other.run(accumulator) == 64).all()  # worker 0 has not written yet
            other.run(quick)
            once = other.run([accumulator, power])
            assert once[0][0, 0] == 32 and once[1].flat[0] == 1
            other.run(open_gate)
            waiting.join(SECONDS)
            assert not waiting.is_alive()
            twice = other.run([accumulator, power, step])
            np.testing.assert_array_equal(twice[0], once[0])
            np.testing.assert_array_equal(twice[1], once[1])
            assert twice[2] == 2


def operations_before(operation, gate):
    """Returns the direct and indirect inputs of an operation that do not depend on the gate."""
    needs = {}

    def visit(each):
        if each not in needs:
            needs[each] = each is gate
            for other in [tensor.op for tensor in each.inputs] + list(each.control_inputs):
                needs[each] |= visit(other)
        return needs[each]

    assert visit(operation)
    return [each for each, waits in needs.items() if not waits]
