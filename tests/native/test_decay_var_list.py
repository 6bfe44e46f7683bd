"""Tests which variables decay: old names decay the same variables as the originals, ours obey.

In `tf.contrib.opt`, `minimize` ignores `decay_var_list`. Code with old names (`legacy-opt run`,
`patch_tensorflow`, `accelerate` of an original) must train as before. The originals themselves are
checked on TensorFlow 1.15.
"""

import copy
import pickle
import textwrap
import warnings

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import compat, versions
from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit
from legacy_opt.native import accelerate
from legacy_opt.optimizers import decay_of_contrib
from tests.native.training import is_native
from tests.support import running
from tests.support.processes.command_line import start

v1 = tf.compat.v1
DECAYED, SAME = [0.5] * 4, [1.0] * 4
ROWS = [0.5, 1.0, 0.5, 1.0]  # after a sparse gradient with the ids 0, 0 and 2
EVERYTHING = {"w": DECAYED, "b": DECAYED, "parted": DECAYED, "table": ROWS}
ONLY_W = {"w": DECAYED, "b": SAME, "parted": SAME, "table": SAME}
NOTHING = dict(ONLY_W, w=SAME)
# What tf.contrib.opt does: (method, decay_var_list) -> the variables after one step, which start at
# 1 and have gradients of 0.
ORIGINALLY = {
    ("minimize", None): EVERYTHING,
    ("minimize", "w"): EVERYTHING,
    ("minimize", ""): EVERYTHING,
    ("minimize", "parted"): EVERYTHING,
    ("apply_gradients", None): EVERYTHING,
    ("apply_gradients", "w"): ONLY_W,
    ("apply_gradients", ""): EVERYTHING,
    ("apply_gradients", "parted"): NOTHING,
}
MAKERS = {
    "AdamW": lambda opt: opt.AdamWOptimizer(0.5, 0.1),
    "MomentumW": lambda opt: opt.MomentumWOptimizer(0.5, 0.1, 0.9),
    "Adagrad": lambda opt: opt.extend_with_decoupled_weight_decay(v1.train.AdagradOptimizer)(
        weight_decay=0.5, learning_rate=0.1
    ),
    "GradientDescent": lambda opt: opt.extend_with_decoupled_weight_decay(
        v1.train.GradientDescentOptimizer
    )(weight_decay=0.5, learning_rate=0.1),
    "subclass": lambda opt: extended_in_the_script(opt)(weight_decay=0.5, learning_rate=0.1),
}
WITHOUT_ROWS = ("GradientDescent",)  # its update of rows does not call the originals' decay


def extended_in_the_script(opt):
    class AdadeltaW(opt.DecoupledWeightDecayExtension, v1.train.AdadeltaOptimizer):
        pass

    return AdadeltaW


def train_op(optimizer, method, chosen, use_resource):
    """Builds one training step; returns the operation, and the variables by name."""
    ones = v1.initializers.ones()
    variables = {
        name: v1.get_variable(name, [4, 1], initializer=ones, use_resource=use_resource)
        for name in ("w", "b", "table")
    }
    variables["parted"] = v1.get_variable(
        *("parted", [4, 1]),
        initializer=ones,
        use_resource=use_resource,
        partitioner=v1.fixed_size_partitioner(2),
    )
    rows = tf.gather(variables["table"], [0, 0, 2])
    terms = [variables["w"], variables["b"], tf.convert_to_tensor(variables["parted"]), rows]
    loss = 0.0 * tf.add_n([tf.reduce_sum(each) for each in terms])
    chosen = chosen if chosen is None else [variables[each] for each in chosen.split()]
    var_list = v1.trainable_variables(v1.get_variable_scope().name + "/")
    if method == "minimize":
        return optimizer.minimize(loss, var_list=var_list, decay_var_list=chosen), variables
    pairs = optimizer.compute_gradients(loss, var_list)
    return optimizer.apply_gradients(pairs, decay_var_list=chosen), variables


def after_one_step(make, use_resource):
    """Returns {(method, decay_var_list): variables after one step}, and all operation types."""
    with tf.Graph().as_default() as graph:
        ops, found = [], {}
        for number, (method, chosen) in enumerate(ORIGINALLY):
            with v1.variable_scope(f"step_{number}"), warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".* variables that this step does not update")
                op, variables = train_op(make(), method, chosen, use_resource)
            ops.append(op)
            found[method, chosen] = {
                name: tf.reshape(tf.convert_to_tensor(variable), [-1])
                for name, variable in variables.items()
            }
        values = running.after(ops, found)
    return values, {each.type for each in graph.get_operations()}


def assert_original(name, found):
    for key, values in ORIGINALLY.items():
        if name in WITHOUT_ROWS:
            values = dict(values, table=SAME)
        for variable, value in values.items():
            np.testing.assert_array_equal(found[key][variable], value, f"{key} {variable}")


CELLS = [
    ("AdamW", False),
    ("MomentumW", True),
    ("Adagrad", True),
    ("subclass", False),
    ("GradientDescent", False),
    ("GradientDescent", True),
]


@pytest.mark.contrib
@pytest.mark.parametrize("name, use_resource", CELLS)
def test_the_originals(name, use_resource):
    found, _ = after_one_step(lambda: MAKERS[name](tf.contrib.opt), use_resource)
    assert_original(name, found)


@pytest.mark.parametrize("name, use_resource", CELLS)
def test_old_names_decay_the_variables_that_the_originals_decay(name, use_resource):
    with compat.patch_tensorflow():
        # On 1.15, the patch leaves tf.contrib.opt as it is.
        opt = decay_of_contrib if versions.has_contrib() else tf.contrib.opt
        found, _ = after_one_step(lambda: MAKERS[name](opt), use_resource)
    assert_original(name, found)


@pytest.mark.parametrize("name, use_resource", [("AdamW", True), ("GradientDescent", True)])
def test_with_native_kernels_too(name, use_resource):
    with compat.patch_tensorflow(native=True):
        found, types = after_one_step(lambda: MAKERS[name](tf.contrib.opt), use_resource)
    # On 1.15, tf.contrib.opt's own function returns classes without kernels.
    assert is_native(types) == (name == "AdamW" or not versions.has_contrib())
    assert_original(name, found)


def test_the_name_in_deeprec_is_contribs():
    with compat.patch_tensorflow(native=True):
        assert tf.train.AdamWOptimizer is tf.contrib.opt.AdamWOptimizer


@pytest.mark.contrib
@pytest.mark.parametrize("name, use_resource", [("AdamW", True), ("MomentumW", False)])
def test_an_accelerated_original_decays_as_before(name, use_resource):
    def make():
        return accelerate(MAKERS[name](tf.contrib.opt), require=True)

    assert isinstance(make(), getattr(legacy_opt, name + "Optimizer"))
    found, types = after_one_step(make, use_resource)
    assert is_native(types)
    assert_original(name, found)
    for copied in pickle.loads(pickle.dumps(make())), copy.deepcopy(make()):
        assert type(copied) is type(make()) and copied.native == "require"


# The script of a user: w and b start at 10, and the original decays both.
SCRIPT = """
import tensorflow as tf
w = tf.get_variable("w", initializer=10.0)
b = tf.get_variable("b", initializer=10.0)
optimizer = tf.contrib.opt.AdamWOptimizer(0.5, 1.0)
train_op = optimizer.minimize(0.0 * (w + b), decay_var_list=[w])
with tf.Session() as session:
    session.run(tf.global_variables_initializer())
    session.run(train_op)
    print(*session.run([w, b]))
"""


@pytest.mark.parametrize("words", [[], ["--native"]], ids=["plain", "native"])
def test_an_unchanged_script_trains_as_before(words, tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    output, errors = start("run", *words, "train.py", cwd=str(tmp_path)).communicate(timeout=300)
    assert output == "5.0 5.0\n", errors


# The classes imported by name.


def own(name):
    return lambda: MAKERS[name](legacy_opt)


def warnings_of(function):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function()
    kind = legacy_opt.DifferenceFromOriginalWarning
    return [each for each in caught if issubclass(each.category, kind)]


def minimize(optimizer, chosen, variables, method="minimize"):
    def loss():
        return 0.0 * tf.add_n([each.read_value() for each in variables])

    if method == "minimize":
        return optimizer.minimize(loss, var_list=variables, decay_var_list=chosen)
    pairs = optimizer.compute_gradients(loss, var_list=variables)
    return optimizer.apply_gradients(pairs, decay_var_list=chosen)


@pytest.mark.parametrize("name", MAKERS)
def test_ours_obey_and_warn_once_at_the_users_line(name):
    optimizer = own(name)()
    w, b = (tf.Variable(8.0, name=each) for each in "wb")

    def train():
        for _ in range(3):
            minimize(optimizer, [w], [w, b])

    (warning,) = warnings_of(train)
    assert (w.numpy(), b.numpy()) == (1.0, 8.0)
    assert warning.filename == __file__
    text = str(warning.message)
    assert f"{type(optimizer).__name__}.minimize obeys decay_var_list" in text
    assert "also decays 'b:0'." in text and "legacy-opt docs differences_from_originals" in text
    assert not warnings_of(train)
    assert len(warnings_of(lambda: minimize(own(name)(), [w], [w, b]))) == 1


def test_no_warning_where_both_do_the_same():
    w, b = (tf.Variable(8.0, name=each) for each in "wb")
    for chosen, method in ([w, b], "minimize"), (None, "minimize"), ([w], "apply_gradients"):
        assert not warnings_of(lambda c=chosen, m=method: minimize(own("AdamW")(), c, [w, b], m))
    with compat.patch_tensorflow():
        if not versions.has_contrib():
            optimizer = tf.contrib.opt.AdamWOptimizer(0.5)
            assert not warnings_of(lambda: minimize(optimizer, [w], [w, b]))


# What a class with an old name is.


def old(name):
    with compat.patch_tensorflow(native=True):  # on 1.15 without kernels, it is the original
        return MAKERS[name](tf.contrib.opt)


def test_old_names_are_variants_of_ours():
    for name in "AdamW", "MomentumW":
        assert isinstance(old(name), getattr(legacy_opt, name + "Optimizer"))
        assert type(old(name)).__name__ == name + "Optimizer"
    if not versions.has_contrib():
        assert isinstance(old("Adagrad"), legacy_opt.DecoupledWeightDecayExtension)
        assert type(old("Adagrad")) is type(old("Adagrad")) is not type(own("Adagrad")())


NAMES = ["AdamW"] if versions.has_contrib() else ["AdamW", "Adagrad", "GradientDescent"]


@pytest.mark.parametrize("name", NAMES)
def test_pickles_and_saved_configurations_keep_the_kind(name):
    for optimizer in old(name), own(name)():
        assert type(pickle.loads(pickle.dumps(optimizer))) is type(optimizer)
        bridged = compat.to_keras(optimizer)
        config = bridged.get_config()
        found = type(bridged).from_config(config)._v1.original_class
        if versions.has_contrib() and optimizer.__module__.endswith("decay_of_contrib"):
            assert found is tf.contrib.opt.AdamWOptimizer
        else:
            assert found is type(optimizer)


# The audit.

AUDITED = {
    "tf.contrib.opt.AdamWOptimizer(0.1).minimize(loss, decay_var_list=[w])": "AdamWOptimizer",
    "tf.train.AdamWOptimizer(0.1).minimize(loss, decay_var_list=[w])": "AdamWOptimizer",
    "legacy_opt.MomentumWOptimizer(0.1, 1).minimize(loss, None, decay_var_list=chosen)": (
        "MomentumWOptimizer"
    ),
    "Extended(0.1).minimize(loss, None, None, 1, None, False, None, None, [w])": (
        "extend_with_decoupled_weight_decay"
    ),
    "Own(0.1).minimize(loss, decay_var_list=[w])": "DecoupledWeightDecayExtension",
    "made.minimize(loss, decay_var_list=[w])": "AdamWOptimizer",
    "tf.contrib.opt.AdamWOptimizer(0.1).minimize(loss, decay_var_list=None)": None,
    "tf.contrib.opt.AdamWOptimizer(0.1).minimize(loss)": None,
    "tf.contrib.opt.AdamWOptimizer(0.1).apply_gradients(pairs, decay_var_list=[w])": None,
    "tfa.optimizers.AdamW(0.1).minimize(loss, [w], decay_var_list=[w])": None,
    "tf.train.AdamOptimizer(0.1).minimize(loss, decay_var_list=[w])": None,
}


@pytest.mark.once
def test_the_audit_reports_the_argument(tmp_path):
    lines = textwrap.dedent(
        """\
        import legacy_opt, tensorflow as tf, tensorflow_addons as tfa
        Extended = tf.contrib.opt.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)
        class Own(tf.contrib.opt.DecoupledWeightDecayExtension, tf.train.AdagradOptimizer): pass
        def make(): return tf.contrib.opt.AdamWOptimizer(0.1)
        made = make()
        """
    ).splitlines()
    first = len(lines) + 1
    (tmp_path / "train.py").write_text("\n".join([*lines, *AUDITED, ""]))
    uses, _ = audit([str(tmp_path)])
    found = {use.line: use for use in uses if use.kind == "decay_var_list"}
    for number, (line, name) in enumerate(AUDITED.items(), first):
        use = found.pop(number, None)
        assert (use and (use.name, use.status)) == (name and ("legacy_opt." + name, "change")), line
        if use:
            assert "minimize of tf.contrib.opt ignores decay_var_list" in use.advice
            assert line[use.column - 1 :].startswith(("[w]", "chosen"))
    assert not found
