"""Tests an OptimizerV2 of Keras 2 in Keras 3: equal, bit for bit, to itself in tf_keras."""

import collections
import functools

import numpy as np
import pytest
import tensorflow as tf

from legacy_opt.compat import to_keras, to_v1
from tests.support import running
from tests.support.keras import keras_models
from tests.support.keras.keras_apis import KERAS_3, OPTIMIZER_V2
from tests.support.keras.optimizers_v2 import MAKERS, Gravity, Heavy, Lookahead, legacy, schedules

pytestmark = pytest.mark.keras3

keras = KERAS_3.keras
PROBLEM = keras_models.problem()


def crossed(name, **arguments):
    return to_keras(MAKERS[name](), api="keras3", **arguments)


@pytest.mark.in_turn(name=MAKERS, way=["function", "eager", "fit", "fit eagerly"])
def test_equals_itself_in_keras_2(name, way):
    expected = OPTIMIZER_V2.run(MAKERS[name](), way, PROBLEM)
    optimizer = crossed(name)
    running.assert_same(KERAS_3.run(optimizer, way, PROBLEM), expected)
    assert optimizer.iterations.numpy() == optimizer._inner.iterations.numpy() == PROBLEM.steps


def test_the_given_optimizer_does_not_change():
    given = MAKERS["Heavy"]()
    first, second = (to_keras(given, api="keras3") for _ in range(2))
    for each in (first, second):
        running.assert_same(
            KERAS_3.run(each, "fit", PROBLEM), OPTIMIZER_V2.run(MAKERS["Heavy"](), "fit", PROBLEM)
        )
    assert not given._slots and given._iterations is None


def test_names_of_variables_are_those_of_keras_2():
    names = []

    class Noting(legacy.SGD):
        def _resource_apply_dense(self, grad, var, apply_state=None):
            names.append(var.name)
            return super()._resource_apply_dense(grad, var, apply_state)

    class Model(keras.Model):
        def __init__(self):
            super().__init__(name="top")
            self.last = keras.layers.Dense(1, name="last")

        def call(self, inputs):
            return self.last(inputs)

    model = Model()
    model.compile(to_keras(Noting(0.1), api="keras3"), "mse")
    model.fit(np.ones([2, 2]), np.ones(2), verbose=0)
    assert set(names) == {"top/last/kernel:0", "top/last/bias:0"}
    assert [each.value.name for each in model.trainable_variables] == ["top/kernel:0", "top/bias:0"]


# Hyperparameters.


@pytest.mark.parametrize("way", ["function", "eager"])
def test_hyperparameters_can_be_set(way):
    def between(variables, number, optimizer):
        if number == 4:
            optimizer.learning_rate = 0.03
            optimizer.momentum = 0.5
        if number == 8:
            optimizer.weight_decay = 0.2

    traces = []
    for optimizer in (MAKERS["Heavy"](), crossed("Heavy")):
        traces.append(
            keras_models.loop(
                PROBLEM, optimizer, way, lambda *args, each=optimizer: between(*args, each)
            )[0]
        )
    running.assert_same(traces[1], traces[0])
    assert float(optimizer.learning_rate) == np.float32(0.03)
    assert float(optimizer.weight_decay) == np.float32(0.2)


def test_schedules_can_be_set():
    optimizer = crossed("SGD, schedule")
    assert float(optimizer.learning_rate) == np.float32(0.1)
    optimizer.learning_rate = keras.optimizers.schedules.ExponentialDecay(0.2, 3, 0.5)
    expected = legacy.SGD(schedules.ExponentialDecay(0.2, 3, 0.5), momentum=0.9)
    running.assert_same(
        KERAS_3.run(optimizer, "fit", PROBLEM), OPTIMIZER_V2.run(expected, "fit", PROBLEM)
    )

    class Own(keras.optimizers.schedules.LearningRateSchedule):
        def __call__(self, step):
            return 0.1

        def get_config(self):
            return {}

    with pytest.raises(TypeError, match="is a schedule of Keras 3 that Keras 2 does not have"):
        optimizer.learning_rate = Own()


def test_a_variable_of_the_user_is_the_learning_rate():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        rate, variable = tf.Variable(0.1), tf.Variable(1.0)
        optimizer = make(legacy.SGD(rate))
        for number in (0.1, 0.5):
            rate.assign(number)
            optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


def test_attributes_that_are_no_hyperparameters_can_be_set():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(legacy.Adam(0.1))
        optimizer.epsilon = 3.0
        optimizer.lr = 0.4
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1] and optimizer.epsilon == 3.0


def test_a_hyperparameter_that_is_read_early_is_saved(tmp_path):
    optimizer = crossed("Adam")
    assert optimizer.learning_rate == 0.1 and optimizer.beta_1 == 0.9
    optimizer.build([keras.Variable([1.0])])
    assert len(optimizer.variables) == 3 + 4  # iterations and slots; hyperparameters


class Halves(legacy.SGD):
    """Has a property, a method, and an attribute that Keras 3 has, too."""

    factor = property(
        lambda self: self._factor, lambda self, value: setattr(self, "_factor", value)
    )

    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self._factor, self.weight_decay = 1.0, 0.25

    def half(self, number):
        return number * self._factor / 2

    def _resource_apply_dense(self, grad, var, apply_state=None):
        change = self.half(grad) + self.weight_decay * var
        return super()._resource_apply_dense(change, var, apply_state)


def test_attributes_of_the_class():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(Halves(0.1))
        assert (optimizer.factor, optimizer.weight_decay) == (1.0, 0.25)
        optimizer.factor, optimizer.weight_decay = 3.0, 0.5
        assert optimizer.half(2.0) == 3.0
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


@pytest.mark.parametrize("name", ["clipnorm", "clipvalue", "global_clipnorm"])
@pytest.mark.parametrize("later", [2.0, None])
def test_clipping_by_the_optimizer_v2_can_be_set(name, later):
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable([1.0, 2.0]), make(legacy.SGD(0.1, **{name: 0.5}))
        assert getattr(optimizer, name) == 0.5
        for _ in range(2):
            optimizer.apply_gradients([(tf.constant([3.0, 4.0]), variable)])
            setattr(optimizer, name, later)
        values.append(variable.numpy())
    np.testing.assert_array_equal(*values)
    assert getattr(type(optimizer).from_config(optimizer.get_config()), name) == later
    with pytest.raises(ValueError, match=f"{name}=0.3: Keras would apply it besides SGD"):
        to_keras(legacy.SGD(0.1, **{name: 0.5}), api="keras3", **{name: 0.3})


def test_a_function_is_called_once_in_each_step():
    rates = iter([0.5, 0.25, 0.125])
    optimizer = to_keras(legacy.SGD(lambda: next(rates)), api="keras3")
    variable = tf.Variable(1.0)
    for _ in range(3):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 1 - 0.5 - 0.25 - 0.125


class Skips(legacy.Adam):
    """Skips steps with large gradients, and does not count them."""

    def apply_gradients(self, grads_and_vars, name=None, **kwargs):
        pairs = list(grads_and_vars)
        with tf.init_scope():
            self._create_all_weights([variable for _, variable in pairs])

        def update():
            super(Skips, self).apply_gradients(pairs)
            return True

        return tf.cond(pairs[0][0] < 3.0, update, lambda: False)


@pytest.mark.parametrize("way", ["function", "eager"])
@pytest.mark.parametrize("batches", [None, 2])
def test_the_class_decides_which_steps_count(batches, way):
    results = []
    options = {} if batches is None else {"gradient_accumulation_steps": batches}
    for make in (lambda each: each, functools.partial(to_keras, api="keras3", **options)):
        variable, optimizer = tf.Variable(1.0), make(Skips(0.1))
        of_keras_2 = optimizer._iterations is None

        def step(grad, variable=variable, optimizer=optimizer):
            optimizer.apply_gradients([(grad, variable)])

        step = tf.function(step) if way == "function" else step
        for grad in (1.0, 2.0, 3.0, 2.5, 4.0, 1.5):
            for _ in range(1 if of_keras_2 else batches or 1):
                step(tf.constant(grad))
        results.append((variable.numpy(), int(optimizer.iterations)))
    assert results[0] == results[1] and results[0][1] == 4


def test_the_learning_rate_of_an_optimizer_that_wraps_another():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable, optimizer = tf.Variable(1.0), make(MAKERS["Lookahead"]())
        assert float(optimizer.learning_rate) == np.float32(0.1)
        optimizer.learning_rate = 0.5
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
        optimizer.learning_rate = 0.2
        optimizer.apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[:2] == values[2:]


def test_slots_start_with_numbers_in_full_precision():
    class Starts(legacy.SGD):
        def _create_slots(self, var_list):
            for each in var_list:
                self.add_slot(each, "start", initializer=0.1, shape=[])

    optimizer = to_keras(Starts(0.1), api="keras3")
    variable = keras.Variable([1.0], dtype="float64")
    optimizer.build([variable])
    assert optimizer.get_slot(variable, "start").numpy() == 0.1


def test_a_constraint_is_applied_once():
    values = []
    for make in (lambda each: each, functools.partial(to_keras, api="keras3")):
        variable = tf.Variable(1.0, constraint=lambda value: value * 0.5)
        make(legacy.SGD(0.1)).apply_gradients([(tf.constant(1.0), variable)])
        values.append(variable.numpy())
    assert values[0] == values[1]


def test_callbacks_read_and_set_the_learning_rate():
    optimizer = crossed("Adam")
    scheduler = keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.5)
    KERAS_3.fit(PROBLEM, optimizer, [scheduler], epochs=2)
    assert float(optimizer.learning_rate) == np.float32(0.1) * np.float32(0.25)


# Options of Keras 3.


@pytest.mark.parametrize(
    "options", [{"clipnorm": 0.5}, {"global_clipnorm": 0.5}, {"clipvalue": 0.3}]
)
def test_clipping_by_keras_3(options):
    """Keras 3's own options clip as they do for an optimizer of TensorFlow 1."""
    v1_optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    traces = [
        KERAS_3.run(to_keras(each, api="keras3", **options), "function", PROBLEM)
        for each in (legacy.SGD(0.1), v1_optimizer)
    ]
    running.assert_same(*traces)


def test_accumulation_counts_updates():
    optimizer = crossed("Adam", gradient_accumulation_steps=3)
    variable = keras.Variable(np.ones(3, np.float32))
    for value in range(6):
        optimizer.apply([tf.fill([3], float(value))], [variable])
    expected = tf.Variable(np.ones(3, np.float32))
    plain = MAKERS["Adam"]()
    for value in (1.0, 4.0):
        plain.apply_gradients([(tf.fill([3], value), expected)])
    np.testing.assert_array_equal(variable.numpy(), expected.numpy())
    assert optimizer.iterations.numpy() == 2


def test_mixed_precision():
    weights = []
    for home, optimizer in ((OPTIMIZER_V2.keras, MAKERS["Adam"]()), (keras, crossed("Adam"))):
        scaling = home.mixed_precision if home is OPTIMIZER_V2.keras else home.optimizers
        layer = home.layers.Dense(2, dtype="mixed_float16", kernel_initializer="ones")
        model = home.Sequential([layer])
        model.compile(scaling.LossScaleOptimizer(optimizer, initial_scale=64.0), "mse")
        model.fit(np.ones([4, 3], np.float16), np.ones([4, 2]), verbose=0, epochs=3)
        weights.append(model.get_weights())
    for one, other in zip(*weights):
        np.testing.assert_array_equal(one, other)


# Saving.


@pytest.mark.in_turn(
    ending=["keras", "h5", "weights.h5", "checkpoint"],
    name=["Heavy", "Adam amsgrad", "SGD, schedule"],
)
def test_training_continues_from_files(name, ending, tmp_path):
    train_save_and_go_on(name, ending, tmp_path)


@pytest.mark.parametrize("name", ["Adam", "Nadam", "Lookahead"])
def test_a_checkpoint_is_restored_before_the_variables_are_known(name, tmp_path):
    train_save_and_go_on(name, "checkpoint", tmp_path, is_built=False)


@pytest.mark.parametrize("ending", ["keras", "h5", "checkpoint"])
def test_a_schedule_that_was_set_later_is_saved(ending, tmp_path):
    def change(optimizer):
        optimizer.learning_rate = schedules.ExponentialDecay(0.1, 3, 0.5)

    train_save_and_go_on("Adam", ending, tmp_path, change=change)


@pytest.mark.in_turn(name=["Lookahead", "Adam", "Nadam"], ending=["keras", "h5", "checkpoint"])
def test_reading_the_rate_changes_no_file(name, ending, tmp_path):
    """As callbacks do: before the optimizer is built, and before a checkpoint is restored."""
    train_save_and_go_on(
        name, ending, tmp_path, is_built=False, change=lambda optimizer: float(optimizer.lr)
    )


def test_a_restored_rate_is_read_before_the_optimizer_is_built(tmp_path):
    saved = crossed("Adam")
    saved.learning_rate = 0.25
    path = tf.train.Checkpoint(optimizer=saved).save(str(tmp_path / "saved"))
    other = crossed("Adam")
    tf.train.Checkpoint(optimizer=other).restore(path)
    assert float(other.learning_rate) == 0.25


def test_a_variable_of_the_user_is_in_checkpoints(tmp_path):
    rate = tf.Variable(0.5)
    path = tf.train.Checkpoint(o=to_keras(legacy.SGD(rate), api="keras3")).save(str(tmp_path / "x"))
    rate.assign(0.25)
    tf.train.Checkpoint(o=to_keras(legacy.SGD(rate), api="keras3")).restore(path)
    assert rate.numpy() == 0.5


def test_the_variable_of_another_optimizer_is_the_learning_rate():
    other = legacy.Adam(0.1)
    optimizer, variable = to_keras(legacy.SGD(other.learning_rate), api="keras3"), tf.Variable(1.0)
    other.learning_rate = 0.5
    optimizer.apply_gradients([(tf.constant(1.0), variable)])
    assert variable.numpy() == 0.5


def train_save_and_go_on(name, ending, tmp_path, is_built=True, change=lambda optimizer: None):
    """Compares a training with one that is saved and loaded.

    Args:
      name: the name of the optimizer in `MAKERS`.
      ending: the kind of the file.
      tmp_path: a new folder.
      is_built: whether the optimizer is built before a checkpoint is restored.
      change: called with the optimizer in the middle of the training, before it is saved, and, if
        the file is a checkpoint, with the other optimizer before it is restored.
    """
    x, y = np.random.RandomState(0).rand(2, 8, 3)
    y = y[:, :1]

    def made():
        keras.utils.set_random_seed(1)
        model = keras.Sequential([keras.Input([3]), keras.layers.Dense(4), keras.layers.Dense(1)])
        model.compile(crossed(name), keras.losses.MeanSquaredError())
        return model

    model = made()
    model.fit(x, y, verbose=0, shuffle=False, epochs=2)
    change(model.optimizer)
    model.train_function = None  # it was traced with the hyperparameters before `change`
    path = str(tmp_path / f"model.{ending}")
    if ending == "checkpoint":
        path = tf.train.Checkpoint(model=model, optimizer=model.optimizer).save(path)
        other = made()
        if is_built:
            other.optimizer.build(other.trainable_variables)
        change(other.optimizer)
        tf.train.Checkpoint(model=other, optimizer=other.optimizer).restore(path)
    elif ending == "weights.h5":
        model.save_weights(path)
        other = made()
        other.optimizer.build(other.trainable_variables)
        other.load_weights(path)
    else:
        model.save(path)
        known = {"Heavy": Heavy, "Lookahead": Lookahead}
        other = keras.models.load_model(path, custom_objects=known)
    for each in (model, other):
        each.fit(x, y, verbose=0, shuffle=False, epochs=2)
    assert other.optimizer.iterations.numpy() == model.optimizer.iterations.numpy()
    for one, another in zip(other.get_weights(), model.get_weights()):
        np.testing.assert_array_equal(one, another)


@pytest.mark.parametrize(
    "name",
    [
        each
        for each in MAKERS
        if "function" not in each and "transformer" not in each and each != "Lookahead"
    ],
)
def test_a_configuration_makes_the_same_optimizer(name):
    optimizer = crossed(name, use_ema=True)
    with keras.utils.custom_object_scope({"Heavy": Heavy, "Gravity": Gravity}):
        config = keras.optimizers.serialize(optimizer)
        other = keras.optimizers.deserialize(config)
    assert other.use_ema
    assert other._inner.get_config() == optimizer._inner.get_config()


def test_an_unknown_class_cannot_be_loaded():
    config = crossed("Heavy").get_config()
    with pytest.raises(ValueError, match="OptimizerV2 class 'Heavy' is not registered"):
        type(crossed("Adam")).from_config(config)


class Slower(OPTIMIZER_V2.keras.optimizers.schedules.LearningRateSchedule):
    def __call__(self, step):
        return 0.5 / (1 + tf.cast(step, tf.float32))

    def get_config(self):
        return {}


@pytest.mark.parametrize("wrapped", [False, True])
def test_classes_inside_a_configuration_are_found_in_keras_3(wrapped):
    given = Lookahead(Heavy(momentum=0.5)) if wrapped else legacy.SGD(Slower())
    config = keras.saving.serialize_keras_object(to_keras(given, api="keras3"))
    known = {each.__name__: each for each in (Heavy, Slower, Lookahead)}
    made = keras.saving.deserialize_keras_object(config, custom_objects=known)
    assert made._inner.get_config() == to_keras(given, api="keras3")._inner.get_config()
    found = made._inner._optimizer if wrapped else made._inner._hyper["learning_rate"]
    assert type(found) is (Heavy if wrapped else Slower)


def test_a_class_with_the_name_of_another():
    """It would be loaded as TensorFlow's."""
    other = type("Adam", (legacy.SGD,), {})
    optimizer = to_keras(other(0.1), api="keras3")
    with pytest.raises(ValueError, match="Adam cannot be saved: another class of that name"):
        optimizer.get_config()
    other = keras.saving.register_keras_serializable("mine")(other)
    made = keras.saving.deserialize_keras_object(keras.saving.serialize_keras_object(optimizer))
    assert type(made._inner) is other


class ForgetsDefaults(legacy.SGD):
    """Its get_config lacks an argument, as that of TensorFlow Addons' NovoGrad does."""

    def __init__(self, amsgrad=False, use_locking=True):
        super().__init__()
        self.amsgrad = amsgrad

    def get_config(self):
        return {}


def test_arguments_with_defaults_need_not_be_in_a_configuration():
    assert to_keras(ForgetsDefaults(), api="keras3").get_config()
    with pytest.raises(ValueError, match="does not include the argument amsgrad"):
        to_keras(ForgetsDefaults(amsgrad=True), api="keras3").get_config()


# What is refused.


class Minimizes(legacy.SGD):
    def minimize(self, loss, var_list, grad_loss=None, name=None, tape=None):
        return super().minimize(loss * 2, var_list, grad_loss, name, tape)


class AssignsMore(legacy.SGD):
    def minimize(self, *args, **kwargs):
        done = super().minimize(*args, **kwargs)
        self.iterations.assign_add(1)
        return done


class MinimizesAlike(legacy.SGD):
    """Adds an argument to `minimize`, as TensorFlow Addons' AdamW does."""

    decays = None

    def minimize(self, loss, var_list, grad_loss=None, name=None, decays=None, tape=None):
        self.decays = decays
        return super().minimize(loss, var_list=var_list, grad_loss=grad_loss, name=name, tape=tape)


class OwnsAVariable(legacy.SGD):
    def __init__(self, learning_rate=0.1, **kwargs):
        super().__init__(learning_rate, **kwargs)
        self.scale = self.add_weight("scale", shape=[])


class Forgets(legacy.SGD):
    def __init__(self, learning_rate=0.1, factor=2.0, **kwargs):
        super().__init__(learning_rate, **kwargs)


class Holds(legacy.SGD):
    def __init__(self, value=None, learning_rate=0.1, name="Holds", **kwargs):
        super().__init__(learning_rate, name=name, **kwargs)
        self.value = value

    def get_config(self):
        return dict(super().get_config(), value=self.value)


def first(pairs):
    return pairs[0]


@pytest.mark.parametrize("value", [np.arange(3), (1, (2.0, "x")), {"a": [(1,), first]}])
def test_objects_in_a_configuration(value):
    config = keras.saving.serialize_keras_object(to_keras(Holds(value), api="keras3"))
    known = {"Holds": Holds, "first": first}
    made = keras.saving.deserialize_keras_object(config, custom_objects=known)
    np.testing.assert_equal(made.value, value)
    assert type(made.value) is type(value)


@pytest.mark.parametrize(
    "value", [np.zeros(2), collections.deque([1]), collections.OrderedDict(a=1), [[1]]]
)
def test_containers_are_copied(value):
    given = Holds(value)
    made = to_keras(given, api="keras3")
    assert made.value is not value and type(made.value) is type(value)


def trained():
    optimizer = legacy.Adam()
    optimizer.apply_gradients([(tf.ones([]), tf.Variable(1.0))])
    return optimizer


@pytest.mark.parametrize(
    "make, error, message",
    [
        (Minimizes, TypeError, "Minimizes overrides minimize, which Keras 3 does not call"),
        (AssignsMore, TypeError, "AssignsMore overrides minimize"),
        (lambda: Holds([legacy.SGD()]), ValueError, "Holds has optimizers in the container value"),
        (lambda: legacy.SGD, TypeError, "Pass an instance, not the class"),
        (trained, ValueError, "This Adam has trained already"),
        (lambda: Lookahead(trained()), ValueError, "This Lookahead has trained already"),
        (OwnsAVariable, ValueError, "creates the variable 'scale' in its constructor"),
        (
            lambda: OPTIMIZER_V2.keras.mixed_precision.LossScaleOptimizer(legacy.SGD()),
            ValueError,
            "scales the loss. Pass the optimizer inside it",
        ),
        (
            lambda: to_keras(tf.compat.v1.train.AdamOptimizer(), api="optimizer_v2"),
            ValueError,
            "was made by to_keras for Keras 2. Pass the v1 optimizer itself",
        ),
        (
            lambda: OPTIMIZER_V2.keras.optimizers.Adam(),
            TypeError,
            "pass tf_keras.optimizers.legacy.Adam",
        ),
    ],
)
def test_refused(make, error, message):
    with pytest.raises(error, match=message):
        to_keras(make(), api="keras3")


def test_a_minimize_that_computes_the_same_is_not_refused():
    given = MinimizesAlike(0.1, momentum=0.5)
    given.decays = "unchanged"
    assert to_keras(given, api="keras3")._inner.decays == given.decays == "unchanged"


def test_wrong_arguments():
    with pytest.raises(TypeError, match="It is a Keras optimizer already"):
        to_keras(legacy.SGD(), api="optimizer_v2")
    with pytest.raises(ValueError, match="takes only api, name and arguments of Keras 3"):
        to_keras(legacy.SGD(), learning_rate=0.1, api="keras3")
    with pytest.raises(ValueError, match="weight_decay=0.5: Keras would apply it besides Heavy"):
        to_keras(Heavy(), api="keras3", weight_decay=0.5)
    with pytest.raises(ValueError, match="does not include the argument factor"):
        to_keras(Forgets(), api="keras3").get_config()
    with tf.Graph().as_default(), pytest.raises(ValueError, match="Keras 3 has no Session"):
        to_keras(legacy.SGD(), api="keras3")


def test_a_strategy_is_refused_when_the_optimizer_trains():
    """The constructor could not know it."""
    optimizer, variable = crossed("Adam"), tf.Variable(1.0)
    message = "Adam is an OptimizerV2, which to_keras supports in Keras 3 in one replica only"
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope(), pytest.raises(ValueError, match=message):
        optimizer.apply_gradients([(tf.constant(1.0), variable)])


def test_to_v1_takes_a_class_that_does_not_say_self():
    assert type(to_v1(Gravity())).__name__ == "KerasInV1"
