"""Tests the table of docs/from_to.md: its names, and what each row offers instead of a class."""

import inspect
import re

import numpy as np
import pytest
import tensorflow as tf

import legacy_opt
from legacy_opt import versions
from tests.docs import page_runs
from tests.support.cases import optimizers_in
from tests.support.paths import DOCS, ROOT

v1 = tf.compat.v1


def from_to():
    """Returns the cells of each row: two lists of names, and the texts of the last two cells."""
    page = (ROOT / "docs" / "from_to.md").read_text(encoding="utf-8")
    rows = [line.strip("|").split(" |") for line in page.splitlines() if line.startswith("| ")]
    names = lambda cell: re.findall(r"`([^`]+)`", cell)  # noqa: E731
    return [(names(cells[0]), names(cells[1]), cells[2].strip(), cells[3]) for cells in rows[1:]]


def test_the_page_lists_every_optimizer_of_tensorflow_1():
    listed = {name for names, *_ in from_to() for name in names}
    assert {"tf.train." + name for name in optimizers_in(v1.train)} <= listed
    if versions.has_contrib():
        public = {name for name in dir(tf.contrib.opt) if not name.startswith("_")}
        assert {"tf.contrib.opt." + name for name in public} <= listed
    assert len(listed) == sum(len(names) for names, *_ in from_to())


def test_every_replacement_exists():
    listed = set()
    for names, instead, equal, _ in from_to():
        assert bool(instead) == (equal != "nothing here"), names
        for text in instead:
            for name in re.findall(r"(?:legacy_opt|tf)(?:\.\w+)+", text):
                found = {"tf": tf, "legacy_opt": legacy_opt}[name.split(".")[0]]
                for attribute in name.split(".")[1:]:
                    found = getattr(found, attribute)
                listed.add(name)
    ours = set(optimizers_in(legacy_opt)) - {"RuleOptimizer", "OptimizerWrapper"}
    assert {"legacy_opt." + name for name in ours} <= listed, "add rows to docs/from_to.md"


@pytest.mark.parametrize(
    "name, words",
    [
        ("LazyAdam", "did you mean 'LazyAdamOptimizer'"),
        ("LazyAdamOptimzer", "did you mean 'LazyAdamOptimizer'"),
        ("Slots", "did you mean 'Slot'"),
        ("AdamOptimizer", "has tf.compat.v1.train.AdamOptimizer ("),
        ("Momentum", "has tf.compat.v1.train.MomentumOptimizer ("),
        ("GGTOptimizer", "attribute 'GGTOptimizer' ("),
    ],
)
def test_the_error_for_an_unknown_name_suggests_a_name(name, words):
    assert not hasattr(legacy_opt, name)
    with pytest.raises(AttributeError) as error:
        getattr(legacy_opt, name)
    assert words in str(error.value) and "legacy-opt docs from_to" in str(error.value)
    with pytest.raises(AttributeError, match="has no attribute '__wrapped__'$"):
        getattr(legacy_opt, "__wrapped__")  # noqa: B009


def test_names_without_replacement_are_missing():
    for names, _, equal, _ in from_to():
        for name in names if equal == "nothing here" else ():
            assert not hasattr(legacy_opt, name.split(".")[-1]), name


# Each row is walked: its classes train, or its last cell says what to do.


def sgd():
    return v1.train.GradientDescentOptimizer(0.5)


def multiplied_rate(schedule):
    """Returns an optimizer whose learning rate is a schedule, a function of the step."""
    return v1.train.GradientDescentOptimizer(lambda: schedule(v1.train.get_global_step()))


# Values of constructors' required arguments, by name. A new row needs one only for a new name.
ARGUMENTS = {
    "average_decay": lambda: 0.9,
    "clip_norm": lambda: 1.0,
    "clip_value_max": lambda: 1.0,
    "clip_value_min": lambda: -1.0,
    "global_step": v1.train.get_global_step,
    "incr_every_n_steps": lambda: 2,
    "init_loss_scale": lambda: 8.0,
    "initial_learning_rate": lambda: 0.1,
    "lambda_": lambda: 1.0,
    "learning_rate": lambda: 0.1,
    "loss": lambda: tf.reduce_sum(tf.square(v1.trainable_variables()[0])),
    "loss_scale": lambda: 8.0,
    "loss_scale_manager": lambda: legacy_opt.FixedLossScaleManager(8.0),
    "max_norm": lambda: 0.5,
    "maximal_learning_rate": lambda: 0.2,
    "momentum": lambda: 0.9,
    "opt": sgd,
    "optimizer": sgd,
    "replicas_to_aggregate": lambda: 1,
    "routes": lambda: [(sgd(), ".*")],
    "scale_fn": lambda: lambda step: 1.0,
    "step_size": lambda: 2,
    "steps": lambda: 1,
    "vars_to_clip_dims": dict,
    "weight_decay": lambda: 0.01,
    "weight_decay_rate": lambda: 0.01,
}
# Classes that are made in another way: base classes, by one of their subclasses.
MAKERS = {
    "tf.compat.v1.train.Optimizer": sgd,
    "legacy_opt.DecoupledWeightDecayExtension": lambda: (
        legacy_opt.extend_with_decoupled_weight_decay(v1.train.GradientDescentOptimizer)(0.1, 0.5)
    ),
    "legacy_opt.ExternalOptimizerInterface": lambda: legacy_opt.ScipyOptimizerInterface(
        ARGUMENTS["loss"]()
    ),
    "legacy_opt.LossScaleManager": lambda: legacy_opt.FixedLossScaleManager(8.0),
    "legacy_opt.AdamGSOptimizer": lambda: legacy_opt.AdamGSOptimizer(v1.train.get_global_step()),
    "legacy_opt.LazyAdamGSOptimizer": lambda: legacy_opt.LazyAdamGSOptimizer(
        v1.train.get_global_step()
    ),
}


def found(name):
    """Returns the object that a text of the second column names, or None."""
    value = {"tf": tf, "legacy_opt": legacy_opt}.get(name.split(".")[0])
    for attribute in name.split(".")[1:]:
        value = getattr(value, attribute, None)
    return value


ROWS = [pytest.param(*row, id=row[0][0] if row[0] else row[3].strip()) for row in from_to()]


def made(name, cls):
    """Returns an object of a class, made with the required arguments of its constructor."""
    if name in MAKERS:
        return MAKERS[name]()
    parameters = inspect.signature(cls).parameters.values()
    required = [each for each in parameters if each.default is each.empty]
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    names = [each.name for each in required if each.kind not in kinds]
    return cls(**{each: ARGUMENTS[each]() for each in names})


def train(item, w):
    """Trains a variable by one step with an optimizer, a schedule, or a part of one."""
    loss, step = ARGUMENTS["loss"](), v1.train.get_global_step()
    if isinstance(item, legacy_opt.LossScaleManager):
        item = legacy_opt.LossScaleOptimizer(sgd(), item)
    elif callable(item):
        item = multiplied_rate(item)
    if isinstance(item, legacy_opt.ExternalOptimizerInterface):
        run = item.minimize
    else:
        train_op = item.minimize(loss, step)
        run = lambda session: session.run(train_op)  # noqa: E731
    if isinstance(item, v1.train.SyncReplicasOptimizer):
        hook = item.make_session_run_hook(is_chief=True, num_tokens=1)
        session = v1.train.MonitoredTrainingSession(hooks=[hook], stop_grace_period_secs=1)
    else:
        session = v1.Session()
        session.run(v1.global_variables_initializer())
    with session:
        before = session.run(w)
        run(session)
        return before, session.run(w)


@pytest.mark.one_lane
@pytest.mark.parametrize("names, instead, equal, last", ROWS)
def test_a_row_has_a_class_that_trains_or_an_example_or_a_sentence(names, instead, equal, last):
    texts = [re.sub(r"\(.*", "", text) for text in instead]
    classes = {text: found(text) for text in texts if inspect.isclass(found(text))}
    for name, cls in classes.items():
        if name == "tf.compat.v1.tpu.CrossShardOptimizer":
            continue  # it sums gradients by an operation that only TPUs have
        if name.startswith("legacy_opt.compat."):
            assert "](" in last  # a callback of Keras, with an example
            continue
        with tf.Graph().as_default():
            w = v1.get_variable("w", initializer=[[1.0, 2.0], [3.0, 4.0]])
            v1.train.create_global_step()
            item = made(name, cls)
            assert isinstance(item, cls)
            before, after = train(item, w)
        assert np.all(np.isfinite(after)) and not np.array_equal(before, after), name
    if not classes:
        assert last.strip(), "the last column needs an example or a sentence"
    for target in re.findall(r"\]\(([^)]+)\)", last):
        check_example(*f"{target}#".split("#")[:2])


def check_example(page, anchor):
    """Asserts that a page, or its section, has an example that is executed."""
    path = DOCS / (page or "from_to.md")
    text = path.read_text(encoding="utf-8")
    executed = [part["code"] for part in page_runs.read(path).parts if part["language"]]
    if anchor:
        sections = {anchor_of(each): each for each in re.split(r"^(?=##+ )", text, flags=re.M)}
        text = sections[anchor]
    assert any(code in text for code in executed), f"{page}#{anchor} has no example"


def anchor_of(section):
    """Returns the anchor of a section, as GitHub makes it from the heading."""
    heading = section.split("\n")[0].lstrip("# ").lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")
