"""The stages of the migration. A stage runs on one version of TensorFlow.

A stage is a function of a `Story`, the story's flights, an optimizer's name and a period's name. It
reads the previous stage's files from the story's folder, writes files for the next stage, and
returns a row of the table that migration_story.py prints at the end.
"""

import importlib.util

import numpy as np
import tensorflow as tf

from flights.keras_model import fit, keras, state_of
from flights.training import first_difference, with_ref_variables, write_json
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

    Attributes:
      trainer: the `Trainer`.
      variables: a dict of all variables of the graph.
    """

    def __init__(self, story, flights, optimizer):
        self.story = story
        settings = {migration_model.SCOPE: migration_model.SETTINGS[optimizer]}
        self.trainer = with_ref_variables(flights, settings, story.batch_size)
        self.variables = self.trainer.named_variables()
        self.predictions = self.trainer.new_predictions()

    def train(self, session, period, label):
        """Trains on the flights of a period; returns the results."""
        label = f"{label}, {period.name}"
        self.trainer.train(session, self.predictions, period.start, period.stop, label=label)
        rows = slice(period.start * self.story.batch_size, period.stop * self.story.batch_size)
        return dict(session.run(self.variables), predictions=self.predictions[0, rows])

    def assign(self, session, values):
        """Assigns values to all variables."""
        for name, variable in self.variables.items():
            variable.load(values[name], session)


def stay(story, flights, optimizer, first):
    """Trains without migration from January to December, and saves a checkpoint after June.

    A second run restores this checkpoint, changes each number in the variables and slots by one
    unit in the last place, and trains until December. This run shows how rounding errors grow.
    """
    program = OldProgram(story, flights, optimizer)
    first, _ = story.period(first)
    checkpoint = story.checkpoint(optimizer, first)
    with program.trainer.session() as session:
        session.run(program.trainer.initializer)
        for period in story.periods:
            run = program.train(session, period, f"{optimizer}, never moved")
            story.save_run(run, optimizer, STAYED, period)
            if period is first:
                program.trainer.saver.save(session, checkpoint, write_meta_graph=False)
    with program.trainer.session() as session:
        program.trainer.saver.restore(session, checkpoint)
        program.assign(session, nudged(session.run(program.variables)))
        for period in story.periods[1:]:
            run = program.train(session, period, f"{optimizer}, nudged")
            story.save_run(run, optimizer, NUDGED, period)
    return {"to": SESSION_HERE, "run": STAYED}


def nudged(values):
    """Replaces each float of the arrays by the next larger or the next smaller one, at random."""
    random, found = np.random.RandomState(0), dict(values)
    for name, value in values.items():
        if np.issubdtype(value.dtype, np.floating):
            up = random.uniform(size=value.shape) < 0.5
            found[name] = np.nextafter(value, np.where(up, np.inf, -np.inf).astype(value.dtype))
    return found


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

    def train(self, optimizer, period, label):
        """Trains on the flights of a period; returns the predictions."""
        flights = self.story.flights_of(self.flights, period)
        return fit(self.model, optimizer, flights, self.story.batch_size, f"{label}, {period.name}")


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
    with witness.trainer.session() as session:
        witness.trainer.saver.restore(session, original)
        restored = session.run(witness.variables)
        session_run = witness.train(session, period, f"{optimizer}, Session")
    story.save_run(session_run, optimizer, SESSION, period)
    arrived = first_difference(restored, state_of(program.model, program.optimizer))
    predictions = program.train(program.optimizer, period, f"{optimizer}, {KERAS}")
    run = dict(state_of(program.model, program.optimizer), predictions=predictions)
    story.save_run(run, optimizer, MOVED, period)
    path = story.checkpoint(optimizer, period)
    model_and_names = program.model, program.optimizer, program.names
    compat.save_v1_checkpoint(path, *model_and_names, like=original, overwrite=True)
    return {
        "to": KERAS_HERE,
        "tensors": len(loaded.transferred),
        "arrived": arrived,
        "difference": first_difference(session_run, run),
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
    saved = state_at(story, optimizer, before)
    witness = OldProgram(story, flights, optimizer)
    with witness.trainer.session() as session:
        witness.assign(session, saved)
        expected = witness.train(session, period, f"{optimizer}, Session with assigned values")
    program = OldProgram(story, flights, optimizer)
    with program.trainer.session() as session:
        program.trainer.saver.restore(session, story.checkpoint(optimizer, before))
        restored = session.run(program.variables)
        run = program.train(session, period, f"{optimizer}, rolled back")
        checkpoint = story.checkpoint(optimizer, period)
        program.trainer.saver.save(session, checkpoint, write_meta_graph=False)
    story.save_run(run, optimizer, MOVED, period)
    return {
        "to": SESSION_HERE,
        "tensors": len(restored),
        "arrived": first_difference(saved, restored),
        "difference": first_difference(expected, run),
        "run": MOVED,
    }


def state_at(story, optimizer, period):
    """Returns the variables and slots of the migrated training at the end of a period."""
    run = story.load_run(optimizer, MOVED, period)
    return {name: value for name, value in run.items() if name != "predictions"}


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
    saved = state_at(story, optimizer, before)
    arrived = first_difference(saved, state_of(program.model, program.optimizer))
    plain = compat.to_plain_keras(program.optimizer, variables=variables)
    predictions = program.train(plain.optimizer, period, f"{optimizer}, {KERAS}'s own")
    # `from_plain_keras` gives the slots the names that they have in the Session.
    v1_optimizer = migration_model.v1_optimizer(optimizer)
    back = compat.from_plain_keras(plain.optimizer, v1_optimizer, variables=variables)
    run = dict(state_of(program.model, back.optimizer), predictions=predictions)
    story.save_run(run, optimizer, KERAS, period)
    return {
        "to": KERAS_HERE,
        "tensors": len(saved),
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
    write_json(name_map, names)
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
