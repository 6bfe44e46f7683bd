"""Trains the model of `flights_session.py` with an Estimator, and resumes from checkpoints.

    python examples_graph_mode/estimator_flights.py

For each month, train_and_evaluate trains on all flights before the month, in time order and in one
pass, and then evaluates on the month. Every call except the first resumes from the checkpoint of
the previous call. A program that was killed resumes in the same way when it is started again.
The scores are worse than in flights_session.py, where the model also trains within the month.

A progress bar shows steps, loss and speed. TensorBoard shows the mean, the minimum and the maximum
of each of the optimizer's slots:

    tensorboard --logdir flights_estimator_out

With --export DIR the model is exported at the end, for serving.

With TensorFlow 2.16 and newer, Estimators need another package (`legacy-opt docs estimators`).
"""

import calendar
import os
import time

import numpy as np
import pandas as pd
import tensorflow.compat.v1 as tf

import legacy_opt
from flights.arguments import one_optimizer_parser, one_optimizer_settings
from flights.data import load_flights
from flights.model import build_logits, build_loss, build_optimizer
from flights.training import progress_pace
from legacy_opt.compat import estimator

SUMMARY_STEPS = 1000


def model_fn(features, labels, mode, params, config):
    """Builds the graph for training, evaluation or prediction: the Estimator's model_fn.

    Args:
      features: dict with ids [batch, fields] and dense [batch, features].
      labels: [batch], 1 for late; None when predicting.
      mode: one of `estimator.ModeKeys`.
      params: dict with `settings` and `vocabulary_size`.
      config: the `RunConfig`.
    """
    settings = params["settings"]
    logits = build_logits(features["ids"], features["dense"], params["vocabulary_size"], settings)
    probability = tf.nn.sigmoid(logits)
    if mode == estimator.ModeKeys.PREDICT:
        return estimator.EstimatorSpec(mode, predictions={"probability": probability})
    loss = build_loss(logits, labels)
    if mode == estimator.ModeKeys.EVAL:
        each = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
        metrics = {
            "log_loss": tf.metrics.mean(each),
            "auc": tf.metrics.auc(labels, probability, num_thresholds=1000),
        }
        return estimator.EstimatorSpec(mode, loss=loss, eval_metric_ops=metrics)
    global_step = tf.train.get_global_step()
    optimizer = build_optimizer(settings, global_step)
    train_op = optimizer.minimize(loss, global_step=global_step)
    hooks = []
    if optimizer.get_slot_names():  # SGD has no slots
        hooks = [legacy_opt.SlotSummaryHook(optimizer, config.model_dir, SUMMARY_STEPS)]
    return estimator.EstimatorSpec(mode, loss=loss, train_op=train_op, training_chief_hooks=hooks)


def make_input_fn(flights, batch_size, first_step=lambda: 0):
    """Returns an input_fn that iterates over `flights` once, in time order.

    A generator yields the data. Otherwise the graph would contain the 60 MB of data, and the graph
    is saved with the checkpoints.

    Args:
      flights: `Flights`.
      batch_size: flights per step.
      first_step: called when the input starts; returns the number of batches to skip.
    """

    def batches():
        for begin in range(first_step() * batch_size, flights.size, batch_size):
            rows = slice(begin, begin + batch_size)
            features = {"ids": flights.ids[rows], "dense": flights.dense[rows]}
            yield features, flights.late[rows]

    types = {"ids": tf.int32, "dense": tf.float32}, tf.float32
    shapes = (
        {
            "ids": tf.TensorShape([None, flights.ids.shape[1]]),
            "dense": tf.TensorShape([None, flights.dense.shape[1]]),
        },
        tf.TensorShape([None]),
    )

    def input_fn():
        return tf.data.Dataset.from_generator(batches, types, shapes).prefetch(4)

    return input_fn


def steps_done(directory):
    """Returns the global step of the latest checkpoint, 0 if there is none."""
    checkpoint = tf.train.latest_checkpoint(directory)
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = one_optimizer_parser(__doc__, "flights_estimator_out")
    parser.add_argument(
        "--months",
        type=int,
        nargs="+",
        choices=range(2, 13),
        default=list(range(7, 13)),
        metavar="MONTH",
        help="months to predict, of 2 to 12 (default: 7 to 12)",
    )
    parser.add_argument("--export", metavar="DIR", help="export the model to this folder")
    return parser.parse_args(argv)


def make_estimator(arguments, vocabulary_size, device_filters=()):
    """Returns the Estimator for the command line's arguments.

    In a cluster, the sessions of the Estimator connect only to processes that match one of the
    `device_filters`. If there are no filters, they connect to all processes.
    """
    settings = one_optimizer_settings(arguments)
    config = estimator.RunConfig(
        model_dir=os.path.join(arguments.out, settings.optimizer),
        tf_random_seed=settings.seed,
        save_checkpoints_steps=1000,
        save_summary_steps=SUMMARY_STEPS,
        log_step_count_steps=None,  # the progress bar shows the steps
        # With one thread per operation, every run adds floats in the same order.
        session_config=tf.ConfigProto(
            intra_op_parallelism_threads=1, device_filters=device_filters
        ),
    )
    params = {"settings": settings, "vocabulary_size": vocabulary_size}
    return estimator.Estimator(model_fn, params=params, config=config)


def train_and_evaluate(model, flights, month, batch_size):
    """Trains on all flights before `month`, then evaluates on `month`.

    Training continues from the latest checkpoint.

    Returns:
      The metrics; None if the model in the checkpoint was already trained on flights of `month`.
    """
    before = int((flights.month < month).sum())
    count = int((flights.month == month).sum())
    max_steps = before // batch_size  # flights after the last whole batch wait for the next month
    start = steps_done(model.model_dir)
    eval_input = make_input_fn(flights.after(before).first(count), 1024)
    if start > max_steps:
        return None
    if start == max_steps:
        return model.evaluate(eval_input, steps=None)
    training = flights.first(max_steps * batch_size)
    train_input = make_input_fn(training, batch_size, lambda: steps_done(model.model_dir))
    bar = legacy_opt.ProgressBarHook(
        total_steps=max_steps, desc="before " + calendar.month_abbr[month], **progress_pace()
    )
    metrics, _ = estimator.train_and_evaluate(
        model,
        estimator.TrainSpec(train_input, max_steps=max_steps, hooks=[bar]),
        # A training shorter than the default throttle_secs (600) is evaluated only at its end.
        estimator.EvalSpec(eval_input, steps=None, start_delay_secs=0),
    )
    return metrics


def export(model, flights, directory):
    """Exports the latest checkpoint as a SavedModel without slots; returns its path."""

    def serving_input():
        receivers = {
            "ids": tf.placeholder(tf.int32, [None, flights.ids.shape[1]]),
            "dense": tf.placeholder(tf.float32, [None, flights.dense.shape[1]]),
        }
        return estimator.export.ServingInputReceiver(receivers, receivers)

    return model.export_saved_model(directory, serving_input).decode()


def main(argv=None):
    """Runs the example; returns a DataFrame with one row per month."""
    arguments = parse_arguments(argv)
    begin = time.time()
    flights = load_flights()
    model = make_estimator(arguments, flights.vocabulary_size)
    rows = {}
    for month in sorted(arguments.months):
        name = calendar.month_abbr[month]
        start = steps_done(model.model_dir)
        metrics = train_and_evaluate(model, flights, month, arguments.batch_size)
        if metrics is None:
            print(f"{name}: skipped. The checkpoint (step {start}) was trained on this month.")
            continue
        rows[name] = {
            "flights": int((flights.month == month).sum()),
            "from step": start,
            "to step": int(metrics["global_step"]),
            "log-loss": float(metrics["log_loss"]),
            "AUC": float(metrics["auc"]),
        }
        print(f"{name}: steps {start} to {metrics['global_step']}.")
    table = pd.DataFrame.from_dict(rows, orient="index")
    if rows:
        print(f"\n{arguments.optimizer}, each month predicted by the model trained until then:")
        print(table.to_string(float_format="{:.4f}".format))
        mean = np.average(table["log-loss"], weights=table["flights"])
        print(f"Mean log-loss: {mean:.4f}")
    if arguments.export:
        print(f"Exported to {export(model, flights, arguments.export)}")
    print(f"{time.time() - begin:.0f} s.")
    return table


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
