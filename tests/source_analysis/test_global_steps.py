"""Tests that `legacy-opt audit` finds lines of scripts that increment a global step a second time.

The original AdamWeightDecayOptimizer of BERT and LAMBOptimizer of ALBERT do not increment the
global step, so the scripts of BERT and ALBERT increment it. legacy_opt's classes of the same names
do increment the global step, so with these classes the scripts would count each step twice. The
audit reports the lines only for these two classes.
"""

import textwrap

import pytest

from legacy_opt.compat.old_programs.source_analysis import (
    decay_var_lists,
    global_steps,
    name_verdicts,
    script_modules,
)
from legacy_opt.compat.old_programs.source_analysis.optimizer_uses import audit

pytestmark = pytest.mark.once

BERTS = "legacy_opt.AdamWeightDecayOptimizer"
LAMB = "legacy_opt.LAMBOptimizer"
IMPORTS = "import legacy_opt, optimization, tensorflow as tf\n"

# A shortened copy of optimization.py in google-research/bert.
OPTIMIZATION = """
import tensorflow as tf

def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu):
  global_step = tf.train.get_or_create_global_step()
  optimizer = AdamWeightDecayOptimizer(learning_rate=init_lr, weight_decay_rate=0.01)
  if use_tpu:
    optimizer = tf.contrib.tpu.CrossShardOptimizer(optimizer)
  tvars = tf.trainable_variables()
  grads = tf.gradients(loss, tvars)
  train_op = optimizer.apply_gradients(
      zip(grads, tvars), global_step=global_step)
  new_global_step = global_step + 1
  train_op = tf.group(train_op, [global_step.assign(new_global_step)])
  return train_op

class AdamWeightDecayOptimizer(tf.train.Optimizer):
  def apply_gradients(self, grads_and_vars, global_step=None, name=None):
    return tf.group(*assignments, name=name)
"""


@pytest.fixture
def counted_twice(tmp_path):
    """Returns a function that audits files (name=code) and returns the uses of "global step"."""

    def run(**files):
        for name, code in files.items():
            (tmp_path / (name + ".py")).write_text(textwrap.dedent(code))
        uses, _ = audit([str(tmp_path)])
        return [use for use in uses if use.kind == "global step"]

    return run


def test_the_script_of_bert(counted_twice):
    (use,) = counted_twice(optimization=OPTIMIZATION)
    assert (use.line, use.column, use.status) == (14, 34, "change")
    assert (use.name, use.instead) == (BERTS, None)
    assert "passed to apply_gradients in line 11" in use.advice
    assert "every training step counts twice" in use.advice


def test_a_script_that_imports_its_replacement(counted_twice):
    code = OPTIMIZATION.partition("class ")[0]
    code = code.replace("\nimport", "from legacy_opt import AdamWeightDecayOptimizer\nimport", 1)
    ((_, line, _, _, status, name, _, _),) = counted_twice(a=code)
    assert (line, status, name) == (14, "change", BERTS)


CREATED = {
    "optimization.AdamWeightDecayOptimizer(1)": BERTS,
    "legacy_opt.LAMBOptimizer(1)": LAMB,
    "hvd.DistributedOptimizer(legacy_opt.LAMBOptimizer(1))": LAMB,
    "hvd.DistributedOptimizer(optimizer=legacy_opt.LAMBOptimizer(1))": LAMB,
    "tf.train.AdamOptimizer(1) if x else legacy_opt.LAMBOptimizer(1)": LAMB,
    "x or legacy_opt.LAMBOptimizer(1)": LAMB,
    "{'lamb': legacy_opt.LAMBOptimizer}[name](1)": LAMB,
    "getattr(legacy_opt, 'LAMBOptimizer')(1)": LAMB,
    "create()": LAMB,
    "Mine(1)": LAMB,
    "tf.train.AdamOptimizer(1)": None,
    "legacy_opt.LazyAdamOptimizer(1)": None,
    "Overrides(1)": None,
    "unknown(1)": None,
}


@pytest.mark.parametrize("expression", CREATED)
def test_how_the_optimizer_is_created(expression, counted_twice):
    code = f"""
    {IMPORTS}
    def create():
        return legacy_opt.LAMBOptimizer(1)
    class Mine(legacy_opt.LAMBOptimizer):
        pass
    class Overrides(legacy_opt.LAMBOptimizer):
        def apply_gradients(self, grads_and_vars, global_step=None, name=None):
            pass
    def train(step):
        optimizer = {expression}
        return optimizer.apply_gradients(pairs, step), step.assign_add(1)
    """
    found = [use.name for use in counted_twice(a=code)]
    assert found == ([CREATED[expression]] if CREATED[expression] else [])


TWICE = {
    "assign_add": "o.minimize(loss, step); step.assign_add(1)",
    "tf.assign_add": "o.minimize(loss, global_step=step); tf.assign_add(step, 1)",
    "imported": "from tensorflow import assign_add as a; o.minimize(loss, step); a(step, 1)",
    "keywords": "o.minimize(loss, step); tf.compat.v1.assign(ref=step, value=1 + step)",
    "tf.add": "o.minimize(loss, step); step.assign(tf.add(step, 1))",
    "behind other operations": "new = tf.cond(ok, lambda: step + 1, lambda: step)\n"
    "    new = tf.identity(new); o.minimize(loss, step); step.assign(new)",
    "the graph's step": "o.minimize(loss, tf.train.get_global_step())\n"
    "    tf.compat.v1.train.get_or_create_global_step().assign_add(1)",
    "alias": "other = step; o.minimize(loss, other); step.assign_add(1)",
    "attribute": "o.minimize(loss, step.variable); step.variable.assign_add(1)",
}
ONCE = {
    "no step": "o.minimize(loss); step.assign_add(1)",
    "None": "o.minimize(loss, None); step.assign_add(1)",
    "no assignment": "o.minimize(loss, step)",
    "reset": "o.minimize(loss, step); step.assign(0)",
    "another variable": "o.minimize(loss, step); other.assign_add(1)",
    "another attribute": "o.minimize(loss, step.variable); step.other.assign_add(1)",
    "two variables": "a = tf.Variable(0); b = tf.Variable(0); o.minimize(loss, a); b.assign_add(1)",
    "computed from another variable": "o.minimize(loss, step); step.assign(other + 1)",
    "in a function of its own": "o.minimize(loss, step)\ndef f(step):\n    step.assign_add(1)",
    "another method": "o.compute_gradients(loss, step); step.assign_add(1)",
}


def train(body):
    return f"{IMPORTS}o = legacy_opt.LAMBOptimizer(1)\ndef train(step):\n    {body}\n"


@pytest.mark.parametrize("name", TWICE)
def test_steps_that_count_twice(name, counted_twice):
    (use,) = counted_twice(a=train(TWICE[name]))
    assert (use.name, use.line) == (LAMB, 3 + len(TWICE[name].splitlines()))


@pytest.mark.parametrize("name", ONCE)
def test_steps_that_count_once(name, counted_twice):
    assert counted_twice(a=train(ONCE[name])) == []


def test_attributes_of_self(counted_twice):
    code = f"""
    {IMPORTS}
    class Model:
        def __init__(self):
            self.step, self.other = tf.Variable(0), tf.Variable(0)
            self.optimizer = optimization.AdamWeightDecayOptimizer(1)

        def once(self):
            return self.optimizer.minimize(loss, self.step), self.other.assign_add(1)

        def twice(self):
            return self.optimizer.minimize(loss, self.step), self.step.assign_add(1)
    """
    (use,) = counted_twice(a=code)
    assert (use.name, use.line) == (BERTS, 13)


# Increments in a race with the schedule that reads the global step.

BERTS_RATE = """
def create_optimizer(init_lr, steps):
  global_step = tf.train.get_or_create_global_step()
  rate = tf.train.polynomial_decay(init_lr, global_step, steps, end_learning_rate=0.0)
  train_op = AdamWeightDecayOptimizer(rate).apply_gradients(pairs, global_step=global_step)
  new_global_step = global_step + 1
  train_op = tf.group(train_op, [global_step.assign(new_global_step)])
  return train_op
"""
IN_ORDER = "  with tf.control_dependencies([train_op]):\n    train_op = tf.group("
BY_NAME = "init_lr, decay_steps=steps, global_step=global_step"
RACES = {
    ("", ""): True,
    ("init_lr, global_step, steps", BY_NAME): True,
    ("global_step.assign(", "tf.assign(global_step, "): True,
    ("assign(new_global_step)", "assign_add(1)"): True,
    ("polynomial_decay", "inverse"): False,
    ("init_lr, global_step", "init_lr, other_step"): False,
    ("  train_op = tf.group(", IN_ORDER): False,
    ("tf.group(", "("): False,
}


@pytest.mark.parametrize("change", RACES)
def test_a_race_of_the_schedule_with_the_increment(change, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import tensorflow as tf" + BERTS_RATE.replace(*change))
    races = list(global_steps.races(script_modules.read(str(script), "__main__")))
    assert races == ([(str(script), 7)] if RACES[change] else [])


ADABOUND = """
class AdaBound(tf.train.Optimizer):
  def apply_gradients(self, pairs, global_step=None, name=None):
    t = tf.cast(global_step, dtype=tf.float32) + 1.0
    rate = self._lr * tf.sqrt(1.0 - self._beta2 ** t) / (1.0 - self._beta1 ** t)
    updates = [variable.assign_sub(rate * gradient) for gradient, variable in pairs]
    updates.append(global_step.assign_add(1))
    return tf.group(*updates, name=name)
"""
AFTER = "    with tf.control_dependencies(updates):\n      updates = [global_step.assign_add(1)]"
RACES_OF_CLASSES = {
    ("", ""): True,
    ("tf.cast(global_step, dtype=tf.float32)", "tf.to_float(global_step)"): True,
    ("global_step.assign_add(1)", "tf.assign_add(global_step, 1)"): True,
    ("tf.cast(global_step", "tf.cast(self._step"): False,
    ("    updates.append(global_step.assign_add(1))", AFTER): False,
    ("def apply_gradients", "def count"): False,
    ("updates.append(global_step.assign_add(1))", "super().apply_gradients(p, global_step)"): False,
}


@pytest.mark.parametrize("change", RACES_OF_CLASSES)
def test_a_race_in_the_apply_gradients_of_a_class(change, tmp_path, counted_twice):
    code = "import tensorflow as tf" + ADABOUND.replace(*change)
    expected = [7] if RACES_OF_CLASSES[change] else []
    uses = counted_twice(script=code)
    assert [use.line for use in uses] == expected
    assert all(use.status == "change" and use.advice == global_steps.RACE for use in uses)
    script = tmp_path / "script.py"
    races = list(global_steps.races(script_modules.read(str(script), "__main__")))
    assert races == [(str(script), line) for line in expected]


def test_uses_of_originals_whose_decay_races_with_the_gradients(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import tensorflow as tf\n"
        "from tensorflow.contrib import opt\n"
        "from tensorflow.contrib.opt import MomentumWOptimizer as M\n"
        "import legacy_opt\n"
        "a = tf.contrib.opt.AdamWOptimizer(0.1), opt.LazyAdamOptimizer()\n"
        "b = M(0.1)\n"
        "c = opt.extend_with_decoupled_weight_decay(tf.train.AdamOptimizer)(0.1)\n"
        "d = legacy_opt.AdamWOptimizer(0.1)\n"
    )
    races = list(decay_var_lists.races(script_modules.read(str(script), "__main__")))
    assert races == [(str(script), line) for line in (5, 6, 7)]
    uses, _ = audit([str(script)])
    told = {use.line for use in uses if use.advice == name_verdicts.DECAY_RACE}
    assert told == {3, 5, 6, 7}
