"""`legacy-opt compare`: does a v1 optimizer compute the same in Keras as in a Session?"""

from . import terminal

_DESCRIPTION = """\
Trains with a v1 optimizer in a graph-mode Session and through to_keras, with the same gradients,
and compares all variables after each step and all slots at the end, bit for bit.
"""
_EPILOG = """\
example: legacy-opt compare training.optimizers:make_optimizer --steps 50

exit codes: 0, equal bit for bit; 1, different; 2, the optimizer cannot be imported or bridged
"""


def add_command(commands):
    """Adds `compare` to the command line."""
    parser = terminal.add_parser(
        commands,
        "compare",
        "see whether an optimizer computes the same in Keras as in a Session",
        _DESCRIPTION,
        _EPILOG,
    )
    parser.add_argument(
        "optimizer",
        metavar="MODULE:OBJECT",
        help="a tf.compat.v1.train.Optimizer, or a function that returns one",
    )
    parser.add_argument("--steps", type=int, default=20, help="how many (default: %(default)s)")
    parser.add_argument(
        "--api",
        choices=("auto", "optimizer_v2", "keras3"),
        default="auto",
        help="the kind of Keras optimizer (default: what tf.keras is here)",
    )
    parser.set_defaults(run=lambda arguments: terminal.run("compare", work, arguments))


def work(arguments, screen):
    """Compares; returns an `Outcome`."""
    del screen
    from legacy_opt import versions

    from .. import user_objects
    from ..keras_bridge.session_comparison import compare_with_session

    optimizer = user_objects.load(arguments.optimizer)
    if callable(optimizer):
        optimizer = user_objects.call(arguments.optimizer, optimizer)
    found = compare_with_session(optimizer, arguments.steps, api=arguments.api)
    facts = dict(found._asdict(), optimizer=type(optimizer).__name__)
    facts.update(tensorflow=versions.tensorflow_version(), api=arguments.api)
    line = f"{facts['optimizer']} on TensorFlow {facts['tensorflow']}: {found}"
    code = terminal.FINE if found else terminal.NEEDS_A_PERSON
    return terminal.Outcome(code, facts, (line,))
