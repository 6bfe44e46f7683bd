"""Resumes of graphs of TensorFlow 1."""

import os

import tensorflow as tf

from legacy_opt.compat.state.checkpoints import training_state
from tests.tools.resume_defects import STEPS, Case

v1 = tf.compat.v1
OPTIMIZERS = {
    "GradientDescentOptimizer": {},
    "MomentumOptimizer": {"momentum": 0.9},
    "AdamOptimizer": {},
    "AdagradOptimizer": {},
    "AdadeltaOptimizer": {},
    "RMSPropOptimizer": {"momentum": 0.5},
    "FtrlOptimizer": {},
}


class Program:
    """A graph with two optimizers for two scopes, averages and a partitioned table."""

    def __init__(self, seed, optimizer="AdamOptimizer"):
        self.graph = tf.Graph()
        with self.graph.as_default():
            v1.set_random_seed(seed)
            partitioner = v1.fixed_size_partitioner(2)
            init = v1.random_normal_initializer()
            with v1.variable_scope("model", use_resource=True, initializer=init):
                self.table = v1.get_variable("table", [8, 4], partitioner=partitioner)
                self.kernel = v1.get_variable("kernel", [4, 4])
                self.bias = v1.get_variable("bias", [4])
            self.step = v1.train.get_or_create_global_step()
            x = v1.random_normal([16, 8], seed=seed)
            y = tf.tanh(tf.matmul(x, tf.convert_to_tensor(self.table)))
            loss = tf.reduce_mean((tf.matmul(y, self.kernel) + self.bias - 1) ** 2)
            make = getattr(v1.train, optimizer)
            train = make(0.01, **OPTIMIZERS[optimizer]).minimize(loss, self.step)
            second = make(0.02, name="Second", **OPTIMIZERS[optimizer])
            with tf.control_dependencies([train]):
                second = second.minimize(loss * 3, var_list=[self.kernel])
            self.average = v1.train.ExponentialMovingAverage(0.9)
            with tf.control_dependencies([second]):
                self.train = self.average.apply([self.kernel, self.bias])
            self.saver = v1.train.Saver()
            self.session = v1.Session()
            self.session.run(v1.global_variables_initializer())

    def run(self, steps=STEPS):
        for _ in range(steps):
            self.session.run(self.train)

    def save(self, folder, name):
        path = os.path.join(folder, name)
        with self.graph.as_default():
            return self.saver.save(self.session, path, write_meta_graph=False)

    def restore(self, path):
        with self.graph.as_default():
            self.saver.restore(self.session, path)

    def set(self, **values):
        """Assigns values by names of variables, with "__" instead of "/"."""
        with self.graph.as_default():
            by_name = {each.op.name: each for each in v1.global_variables()}
            for name, value in values.items():
                by_name[name.replace("__", "/")].load(value, self.session)

    def value(self, name):
        return self.session.run(f"{name}/Read/ReadVariableOp:0")


def defects(folder, seed):
    seed %= 2**31
    first = Program(seed)
    first.run()
    path = first.save(folder, "before")

    def case(name, variable, slot, cause, change, restores=True):
        program = Program(seed + 1)
        if restores:
            program.restore(path)
        with program.graph.as_default():
            change(program)
        after = program.save(folder, name.replace(" ", "_"))
        states = [training_state.read(each, False) for each in (path, after)]
        return Case(name, *states, variable, slot, cause)

    def other_scope(program):
        program.set(model__kernel__Adam=program.value("model/kernel/Second"))

    def cold(program):
        with program.graph.as_default():
            variables = {"kernel": program.kernel, "bias": program.bias}
            variables["table"] = list(program.table)
            named = {f"model/{name}": each for name, each in variables.items()}
            v1.train.init_from_checkpoint(path, named)
            program.session.run(v1.global_variables_initializer())
            program.step.load(STEPS, program.session)

    def partitions(program):
        values = [program.value(f"model/table/part_{i}") for i in range(2)]
        program.set(model__table__part_0=values[1], model__table__part_1=values[0])

    def averages(program):
        names = {program.average.average_name(x): x for x in (program.kernel, program.bias)}
        v1.train.Saver(names).restore(program.session, path)

    yield case("slots of another scope", "model/kernel", "m (Adam)", "moved", other_scope)
    yield case("cold Adam by init_from_checkpoint", "model/bias", "m", "lost", cold, False)
    yield case("reset step", "", "global_step", "step", lambda p: p.step.load(0, p.session))
    powers = lambda p: p.set(beta1_power=0.9, beta2_power=0.999)  # noqa: E731
    yield case("lost beta powers", "", "beta1_power", "lost", powers)
    yield case("partitions swapped", "model/table", "", "reordered", partitions)
    yield case("averages restored into weights", "model/bias", "", "average", averages)


def sound(folder, random, i):
    """Returns a sound resume by a Saver."""
    name = list(OPTIMIZERS)[i % len(OPTIMIZERS)]
    first, second = (Program(random.randrange(2**31), name) for _ in range(2))
    first.run(random.randrange(6))
    path = first.save(folder, f"{i}a")
    second.restore(path)
    after = second.save(folder, f"{i}b")
    return (name, *(training_state.read(each, False) for each in (path, after)))
