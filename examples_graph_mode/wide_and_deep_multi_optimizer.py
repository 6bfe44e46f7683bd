"""Trains a wide & deep model with three optimizers in one MultiOptimizer, in a TF1 Session.

    python examples_graph_mode/wide_and_deep_multi_optimizer.py
    python examples_graph_mode/wide_and_deep_multi_optimizer.py --quick

Ftrl trains the wide part, AdagradDecay the embeddings and Adam the deep part, with one backward
pass and one global step. For comparison, Adagrad alone trains the same model from the same initial
values. Every batch of flights is predicted before the models train on it, so the log-loss measures
predictions of unseen flights.

Halfway, the program saves a checkpoint, and continues from it in a new graph and a new session. The
learning rates are the best of about thirty combinations, tried on the flights from January to June.

On this data one optimizer is enough: over the year, Adagrad alone has a log-loss of 0.450, and the
three optimizers together have 0.456. The program shows how to combine optimizers, and prints the
variables of each optimizer and the size of its state.
"""

import tensorflow.compat.v1 as tf

import legacy_opt
from flights.arguments import new_parser, positive_int
from flights.data import load_flights
from flights.model import DECAY_STEP, Settings, build_optimizer
from flights.optimizers import CATALOGUE
from flights.report import score
from flights.training import CheckpointedRun, Trainer

MULTI, SINGLE = "MultiOptimizer", "Adagrad"
QUICK_STEPS = 300


def make_optimizer(settings, global_step):
    """Returns the optimizer of one of the two models.

    All variable names of a model begin with its scope, "MultiOptimizer/" or "Adagrad/".
    """
    if settings.optimizer != MULTI:
        return build_optimizer(settings, global_step)
    ftrl = tf.train.FtrlOptimizer(0.4)
    decay = legacy_opt.AdagradDecayOptimizer(
        1.2, global_step, accumulator_decay_step=DECAY_STEP, accumulator_decay_rate=0.9
    )
    adam = tf.train.AdamOptimizer(0.01)
    return legacy_opt.MultiOptimizer(
        [(ftrl, ".*/(wide|bias)"), (decay, ".*/embeddings"), (adam, ".*/(hidden|output)")]
    )


def parse_arguments(argv=None):
    """Returns the command line as a namespace."""
    parser = new_parser(__doc__, "wide_and_deep_out")
    add = parser.add_argument
    add("--quick", action="store_true", help=f"{QUICK_STEPS} steps, for a first look")
    add("--steps", type=positive_int, help="stop after so many steps (default: the whole year)")
    add("--resume", action="store_true", help="continue from the latest checkpoint in --out")
    return parser.parse_args(argv)


def print_optimizers(tower):
    """Prints a model's optimizers, with each optimizer's variables and state size."""
    optimizer = tower.optimizer
    is_multi = isinstance(optimizer, legacy_opt.MultiOptimizer)
    shares = optimizer.route(tower.variables) if is_multi else [(optimizer, tower.variables)]
    for inner, variables in shares:
        names = " ".join(each.op.name.split("/", 1)[1] for each in variables)
        state = sum(size_in_bytes(each) for each in inner.variables())
        print(f"  {type(inner).__name__}, {state} bytes of state: {names}")


def size_in_bytes(variable):
    """Returns the size of a variable in bytes."""
    return variable.shape.num_elements() * variable.dtype.base_dtype.size


def new_trainer(flights, batch_size):
    """Returns a `Trainer` of both models, in a new graph."""
    settings = {
        MULTI: Settings(MULTI, learning_rate=0.0),  # not used: each optimizer has its own rate
        SINGLE: Settings(SINGLE, CATALOGUE[SINGLE].learning_rate),
    }
    return Trainer(flights, settings, batch_size, make_optimizer)


def main(argv=None):
    """Runs the example; returns the log-loss by optimizer."""
    arguments = parse_arguments(argv)
    flights = load_flights()
    print(f"{flights.size} flights; TensorFlow {tf.__version__}.")
    trainer = new_trainer(flights, arguments.batch_size)
    for name, tower in zip(trainer.settings, trainer.towers):
        with trainer.graph.as_default():
            print(f"{name}:")
            print_optimizers(tower)
    wanted = arguments.steps or (QUICK_STEPS if arguments.quick else trainer.steps)
    steps = min(wanted, trainer.steps)
    CheckpointedRun(trainer, arguments.out, every=1000).run(-(-steps // 2), arguments.resume)
    print("Saved a checkpoint; continuing from it in a new graph and session.")
    trainer = new_trainer(flights, arguments.batch_size)
    run = CheckpointedRun(trainer, arguments.out, every=1000)
    predictions, variables = run.run(steps, resume=True)
    late = flights.late[: predictions.shape[1]]
    scores = {name: score(late, each) for name, each in zip(trainer.settings, predictions)}
    print(f"After {variables[MULTI + '/global_step']} steps:")
    for name, (loss, auc) in scores.items():
        print(f"  {name}: log-loss {loss:.4f}, AUC {auc:.4f}")
    return {name: loss for name, (loss, _) in scores.items()}


if __name__ == "__main__":
    tf.disable_v2_behavior()
    tf.logging.set_verbosity(tf.logging.ERROR)
    main()
