"""The stages of the migration. A stage runs on one version of TensorFlow.

A stage is a function of a `Story`, the story's flights, an optimizer's name and a period's name. It
reads the previous stage's files from the story's folder, writes files for the next stage, and
returns a row of the table that migration_story.py prints at the end.
"""

import importlib.util
import json

import numpy as np
import tensorflow as tf

from flights.keras_model import fit, keras, run_of
from flights.run_comparison import first_difference, make_trainer, run_of_session
from flights.training import replacing
from legacy_opt import compat
from legacy_opt.compat import cli
from legacy_opt.versions import keras_facts
from migration import model as migration_model
from migration.files import MOVED, NUDGED, SESSION, STAYED

TENSORFLOW = tf.__version__
FACTS = keras_facts()
KERAS = ("tf-keras " if FACTS["home"] == "tf_keras" else "Keras ") + FACTS["version"]
SESSION_HERE = TENSORFLOW + " Session"
KERAS_HERE = f"{TENSORFLOW} {KERAS}"


# --- training in the TF1 graph


class OldProgram:
    """The TF1 program: graph, Session and Saver.

    Args:
      story: the `Story`.
      flights: the story's flights.
      optimizer: the optimizer's name.
    """

    def __init__(self, story, flights, optimizer):
        self.story = story
        settings = migration_model.SETTINGS[optimizer]
        self.trainer = make_trainer(flights, settings, story.batch_size, migration_model.SCOPE)
        self.predictions = self.trainer.new_predictions()

    def session(self):
        """Returns a Session of the program's graph."""
        return self.trainer.session()

    def state(self, session, predictions=None):
        """Returns a `Run` with the predictions, the variables, the global step and the slots."""
        run = run_of_session(predictions, self.trainer, session)
        return with_step(run, session.run(self.trainer.global_step))

    def train(self, session, period, label):
        """Trains on the flights of a period; returns the `Run`."""
        label = f"{label}, {period.name}"
        self.trainer.train(session, self.predictions, period.start, period.stop, label=label)
        rows = slice(period.start * self.story.batch_size, period.stop * self.story.batch_size)
        return self.state(session, self.predictions[0, rows])

    def all_variables(self):
        """Returns all variables of the graph."""
        return self.trainer.graph.get_collection(tf.compat.v1.GraphKeys.GLOBAL_VARIABLES)

    def assign(self, session, run):
        """Assigns the values of a `Run` to all variables.

        Raises:
          ValueError: if the `Run` does not have one value per variable.
        """
        (tower,) = self.trainer.towers
        values = {tower.global_step: run.variables["global_step"]}
        for variable in tower.variables:
            name = variable.op.name.split("/")[-1]
            values[variable] = run.variables[name]
            for slot in tower.optimizer.get_slot_names():
                values[tower.optimizer.get_slot(variable, slot)] = run.slots[name, slot]
        if len(values) != len(self.all_variables()):
            raise ValueError(f"{len(values)} values for {self.all_variables()}")
        for variable, value in values.items():
            variable.load(value, session)


def with_step(run, step):
    """Returns the `Run` with the global step among its variables."""
    return run._replace(variables=dict(run.variables, global_step=np.asarray(step)))


def stay(story, flights, optimizer, first):
    """Trains without migration from January to December, and saves a checkpoint after June.

    A second run restores this checkpoint, changes each number in the variables and slots by one
    unit in the last place, and trains until December. This run shows how rounding errors grow.
    """
    program = OldProgram(story, flights, optimizer)
    first, _ = story.period(first)
    checkpoint = story.checkpoint(optimizer, first)
    with program.session() as session:
        session.run(program.trainer.initializer)
        for period in story.periods:
            run = program.train(session, period, f"{optimizer}, never moved")
            story.save_run(run, optimizer, STAYED, period)
            if period is first:
                program.trainer.saver.save(session, checkpoint, write_meta_graph=False)
    with program.session() as session:
        program.trainer.saver.restore(session, checkpoint)
        nudge(program.all_variables(), session)
        for period in story.periods[1:]:
            run = program.train(session, period, f"{optimizer}, nudged")
            story.save_run(run, optimizer, NUDGED, period)
    return {"to": SESSION_HERE, "run": STAYED}


def nudge(variables, session):
    """Replaces each float by the next larger or the next smaller float, at random."""
    random = np.random.RandomState(0)
    for variable in variables:
        value = session.run(variable)
        if np.issubdtype(value.dtype, np.floating):
            up = random.uniform(size=value.shape) < 0.5
            towards = np.where(up, np.inf, -np.inf).astype(value.dtype)
            variable.load(np.nextafter(value, towards), session)


# --- moves to Keras and back


class KerasProgram:
    """The TF1 program's model as a Keras model, and the optimizer converted to Keras.

    Args:
      story: the `Story`.
      flights: the story's flights.
      optimizer: the optimizer's name.
    """

    def __init__(self, story, flights, optimizer):
        self.story, self.flights = story, flights
        self.model, self.optimizer = migration_model.model_and_optimizer(optimizer)
        self.names = migration_model.names_in_graph(self.model)

    def state(self, predictions=None, optimizer=None):
        """Returns a `Run` with the predictions, the variables, the global step and the slots.

        The slots are those of `optimizer`, which `to_keras` or `from_plain_keras` has created.
        """
        optimizer = optimizer or self.optimizer
        run = run_of(predictions, self.model, optimizer)
        return with_step(run, keras.backend.get_value(optimizer.iterations))

    def train(self, optimizer, period, label):
        """Trains on the flights of a period; returns the predictions."""
        flights = self.story.flights_of(self.flights, period)
        label = f"{label}, {period.name}"
        return fit(self.model, optimizer, flights, self.story.batch_size, label)


def go_to_keras(story, flights, optimizer, period_name):
    """Loads the TF1 program's checkpoint into Keras, and trains for a period with `fit`.

    For comparison, the TF1 program restores the same checkpoint with its Saver on the same
    TensorFlow, and trains on the same flights. At the end `save_v1_checkpoint` saves the Keras
    model in a checkpoint for the TF1 program.

    Returns:
      The row of the table.
    """
    period, before = story.period(period_name)
    program = KerasProgram(story, flights, optimizer)
    original = story.checkpoint(optimizer, before)
    if period is story.periods[1]:
        legacy_opt("inspect", original)
    loaded = compat.load_v1_checkpoint(original, program.model, program.optimizer, program.names)
    witness = OldProgram(story, flights, optimizer)
    with witness.session() as session:
        witness.trainer.saver.restore(session, original)
        restored = witness.state(session)
        session_run = witness.train(session, period, f"{optimizer}, Session")
    story.save_run(session_run, optimizer, SESSION, period)
    arrived = first_difference(restored, program.state(), story.batch_size)
    predictions = program.train(program.optimizer, period, f"{optimizer}, {KERAS}")
    run = program.state(predictions)
    story.save_run(run, optimizer, MOVED, period)
    path = story.checkpoint(optimizer, period)
    model_and_names = program.model, program.optimizer, program.names
    compat.save_v1_checkpoint(path, *model_and_names, like=original, overwrite=True)
    return {
        "to": KERAS_HERE,
        "tensors": len(loaded.transferred),
        "arrived": arrived,
        "difference": first_difference(session_run, run, story.batch_size),
        "run": MOVED,
    }


def roll_back(story, flights, optimizer, period_name):
    """Restores the Keras model's checkpoint in the TF1 program, and trains there for a period.

    For comparison, a second TF1 program trains on the same flights. The Keras model's values are
    assigned to the variables of this program as arrays, not restored from a checkpoint.

    Returns:
      The row of the table.
    """
    period, before = story.period(period_name)
    saved_run = story.load_run(optimizer, MOVED, before)
    witness = OldProgram(story, flights, optimizer)
    with witness.session() as session:
        witness.assign(session, saved_run)
        expected = witness.train(session, period, f"{optimizer}, Session with assigned values")
    program = OldProgram(story, flights, optimizer)
    with program.session() as session:
        program.trainer.saver.restore(session, story.checkpoint(optimizer, before))
        restored = program.state(session)
        run = program.train(session, period, f"{optimizer}, rolled back")
        checkpoint = story.checkpoint(optimizer, period)
        program.trainer.saver.save(session, checkpoint, write_meta_graph=False)
    story.save_run(run, optimizer, MOVED, period)
    names = "Keras", "the restored Session"
    saved_run = saved_run._replace(predictions=None)
    return {
        "to": SESSION_HERE,
        "tensors": len(program.all_variables()),
        "arrived": first_difference(saved_run, restored, story.batch_size, names),
        "difference": first_difference(
            expected,
            run,
            story.batch_size,
            ("the Session with assigned values", "the restored one"),
        ),
        "run": MOVED,
    }


# --- the exit


def leave(story, flights, optimizer, period_name):
    """Switches to Keras' own optimizer, and trains for a period with this optimizer.

    The command `legacy-opt convert` converts the TF1 program's checkpoint to a Keras checkpoint.

    Returns:
      The row of the table.
    """
    period, before = story.period(period_name)
    try:
        compat.to_plain_keras(migration_model.v1_optimizer(optimizer))
    except ValueError as error:
        return {"to": KERAS_HERE, "refused": str(error)}
    converted = convert(story, optimizer, before)
    program = KerasProgram(story, flights, optimizer)
    variables = program.model.trainable_variables
    # An update creates `iterations` and the slots. The checkpoint then overwrites all values.
    zeros = [tf.zeros(variable.shape) for variable in variables]
    program.optimizer.apply_gradients(zip(zeros, variables))
    checkpoint = tf.train.Checkpoint(model=program.model, optimizer=program.optimizer)
    status = checkpoint.restore(converted)
    if not tf.executing_eagerly():
        status.initialize_or_restore(keras.backend.get_session())
    restored = story.load_run(optimizer, MOVED, before)._replace(predictions=None)
    names = "the Session", "the converted checkpoint"
    arrived = first_difference(restored, program.state(), story.batch_size, names)
    plain = compat.to_plain_keras(program.optimizer, variables=variables)
    predictions = program.train(plain.optimizer, period, f"{optimizer}, {KERAS}'s own")
    # `from_plain_keras` gives the slots the names that they have in the Session.
    v1_optimizer = migration_model.v1_optimizer(optimizer)
    back = compat.from_plain_keras(plain.optimizer, v1_optimizer, variables=variables)
    run = program.state(predictions, back.optimizer)
    story.save_run(run, optimizer, KERAS, period)
    return {
        "to": KERAS_HERE,
        "tensors": len(restored.variables) + len(restored.slots),
        "arrived": arrived,
        "run": KERAS,
        "grade": plain.grade,
        "report": str(plain.report),
        "other_keras": other_keras(),
    }


def other_keras():
    """Whether `tf.keras` is Keras 3, and tf_keras (Keras 2) is installed, too."""
    return FACTS["generation"] == 3 and importlib.util.find_spec("tf_keras") is not None


def convert(story, optimizer, period):
    """Converts a checkpoint of the TF1 program to Keras; returns the path of the new checkpoint."""
    model, _ = migration_model.model_and_optimizer(optimizer)
    names = migration_model.names_in_graph(model)
    checkpoint = story.checkpoint(optimizer, period)
    place = optimizer, "checkpoints", period.name, KERAS.replace(" ", "-")
    converted, name_map = story.path(*place, "ckpt"), story.path(*place, "names.json")
    with replacing(name_map) as temporary, open(temporary, "w") as file:
        json.dump(names, file, indent=2)
    function = migration_model.FUNCTIONS[optimizer]
    options = ["--to", "keras", "--model", function, "--name-map", name_map, "--overwrite"]
    legacy_opt("convert", checkpoint, converted, *options)
    return converted


def legacy_opt(*words):
    """Runs the command `legacy-opt`.

    Raises:
      SystemExit: if its exit code is not 0.
    """
    print("$ legacy-opt " + " ".join(words), flush=True)
    code = cli.main(list(words))
    if code:
        raise SystemExit(f"legacy-opt {words[0]} ended with {code}")


# --- all stages

# Each stage's function and period, by name.
STAGES = {
    "stay": (stay, "Jan-Jun"),
    "A": (go_to_keras, "Jul-Aug"),
    "B": (roll_back, "Sep-Oct"),
    "C": (go_to_keras, "Nov-Dec"),
    "exit": (leave, "Nov-Dec"),
}


def run_stage(name, story, flights, optimizer):
    """Runs a stage, and writes its row of the table to the story's folder."""
    function, period = STAGES[name]
    what = function.__doc__.splitlines()[0]
    print(f"\n{optimizer}, {name}, {period}, on TensorFlow {TENSORFLOW}: {what}", flush=True)
    row = dict(function(story, flights, optimizer, period), stage=name, period=period)
    story.save_row(optimizer, f"{list(STAGES).index(name)} {row['to']}", row)
