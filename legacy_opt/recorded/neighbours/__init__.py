"""The table of optimizers of other libraries that compute nearly the same as a rule.

`grading`, and for Keras `compat.in_keras.plain_keras`, measure how near they are.
"""

from __future__ import annotations

import ast
import math
from typing import Any, Callable, Dict, Iterator, List, Mapping, NamedTuple, Sequence, Tuple

KERAS, TORCH, OPTAX = "Keras", "PyTorch", "optax"


class Neighbour(NamedTuple):
    """A row of the table: an optimizer of another library."""

    rules: Tuple[str, ...]  # names of classes of TensorFlow, tf.contrib.opt and this package
    library: str  # `KERAS`, `TORCH` or `OPTAX`
    name: str  # of the optimizer's class; in optax, of the function
    # From the optimizer's arguments to names of our hyperparameters, to constants, or to functions.
    # A function gets a dict with our hyperparameters, "slots" (the names of our slots) and "step"
    # (the number of steps). It may return a list of values to try. With Keras, the learning rate is
    # left out.
    arguments: Mapping[str, Any]
    # From our slots to the optimizer's names of them; the last is the name in Keras 3. A rule may
    # have only some of these slots.
    slots: Mapping[str, Tuple[str, ...]]
    # A hyperparameter that the rule must have for this row, or "". Rows with "" count only if the
    # rule has no hyperparameter that another row needs.
    needs: str


def of_library(library: str) -> Mapping[str, List[Neighbour]]:
    """Returns a dict from the rules that have neighbours in a library to their rows."""
    found = {}
    for row in NEIGHBOURS:
        if row.library == library:
            for rule in row.rules:
                found.setdefault(rule, []).append(row)
    return found


def slot_of_keras(name: str, variables: Sequence[str]) -> Tuple[str, str]:
    """Returns (variable, slot) for the name of an optimizer's variable in Keras; else ("", name).

    The name is "Adam/dense/kernel/m" in Keras 2, or "Adam/m/dense/kernel" from TensorFlow 2.11 to
    2.15, and "adam/dense_kernel_m" in Keras 3. Of the `variables`, the longest are first.
    """
    for variable in variables:
        for form in (variable, variable.replace("/", "_")):
            before, found, after = f"/{name}".rpartition(f"/{form}")
            slot = after[1:] or before.rpartition("/")[2]
            if found and slot and after[:1] in ("", "/", "_") and "/" not in slot:
                return variable, slot
    return "", name.rpartition("/")[2]


def _epsilon(ours: Mapping[str, Any]) -> float:
    """Returns the epsilon for an Adam that adds epsilon after the correction of the bias.

    TensorFlow adds epsilon to the uncorrected root. Both are equal in this step, not in later ones.
    """
    return ours["epsilon"] / _correction(ours)


def _correction(ours: Mapping[str, Any]) -> float:
    """Returns the root of the correction of the second moment in the next step."""
    return math.sqrt(-math.expm1((ours["step"] + 1) * math.log(_betas(ours)[1])))


def _betas(ours: Mapping[str, Any]) -> Tuple[float, ...]:
    return tuple(ours[name] for name in sorted(ours) if name.startswith("beta"))


_COMPUTED: Dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "_betas": _betas,
    "_decay": lambda ours: ours["weight_decay"] / ours["learning_rate"],
    "_epsilon": _epsilon,
    "_epsilon_of_radam": lambda ours: ours["epsilon"] * _correction(ours),
    "_has_mg": lambda ours: "mg" in ours["slots"],
    "_nesterov": lambda ours: [False, True] if ours["momentum"] > 0 else [False],
}
# Columns: name | rules without "Optimizer" | needs | arguments | slots; see `Neighbour`.
# An argument is theirs=ours, or only theirs if both names are the same; a slot is ours=theirs.
_ROWS = {
    KERAS: """
SGD | GradientDescent || momentum=0.0 nesterov=False |
SGD | Momentum || momentum nesterov=use_nesterov | momentum=momentum
Adam | Adam LazyAdam AdamGS LazyAdamGS || beta_1=beta1 beta_2=beta2 epsilon amsgrad=False |
    m=m/momentum v=v/velocity
Adagrad | Adagrad RegAdagrad || initial_accumulator_value epsilon=0.0 | accumulator=accumulator
Adadelta | Adadelta || rho epsilon |
    accum=accum_grad/accumulated_grad accum_update=accum_var/accumulated_delta_var
RMSprop | RMSProp || rho=decay momentum epsilon centered |
    rms=rms/velocity momentum=momentum mg=mg/average_gradient
Ftrl | Ftrl || learning_rate_power initial_accumulator_value l1_regularization_strength
    l2_regularization_strength l2_shrinkage_regularization_strength beta |
    accum=accumulator linear=linear
Adamax | AdaMax || beta_1=beta1 beta_2=beta2 epsilon | m=m/momentum v=v/norm
""",
    TORCH: """
SGD | GradientDescent Momentum || lr=learning_rate |
SGD | Momentum | momentum | lr=learning_rate momentum nesterov=_nesterov | momentum=momentum_buffer
Adam | Adam LazyAdam AdamW || lr=learning_rate betas=_betas eps=_epsilon | m=exp_avg v=exp_avg_sq
AdamW | AdamW | weight_decay | lr=learning_rate betas=_betas eps=_epsilon weight_decay=_decay |
    m=exp_avg v=exp_avg_sq
Adagrad | Adagrad || lr=learning_rate eps=0.0 | accumulator=sum
Adadelta | Adadelta || lr=learning_rate rho eps=epsilon | accum=square_avg accum_update=acc_delta
RAdam | RectifiedAdam || lr=learning_rate betas=_betas eps=_epsilon_of_radam weight_decay
    decoupled_weight_decay=True | m=exp_avg v=exp_avg_sq
""",
    OPTAX: """
sgd | GradientDescent Momentum || learning_rate |
sgd | Momentum | momentum | learning_rate momentum nesterov=_nesterov | momentum=trace
adam | Adam LazyAdam AdamW || learning_rate b1=beta1 b2=beta2 eps=_epsilon | m=mu v=nu
adamw | AdamW | weight_decay | learning_rate b1=beta1 b2=beta2 eps=_epsilon weight_decay=_decay |
    m=mu v=nu
adagrad | Adagrad || learning_rate eps=0.0 | accumulator=sum_of_squares
adadelta | Adadelta || learning_rate rho eps=epsilon | accum=e_g accum_update=e_x
lion | Lion || learning_rate b1=beta_1 b2=beta_2 weight_decay | momentum=mu
radam | RectifiedAdam || learning_rate b1=beta_1 b2=beta_2 eps=epsilon threshold=sma_threshold |
    m=mu v=nu
adabelief | AdaBelief || learning_rate b1=beta_1 b2=beta_2 eps=epsilon eps_root=epsilon | m=mu v=nu
yogi | Yogi || learning_rate b1=beta1 b2=beta2 eps=_epsilon | m=mu v=nu
rmsprop | RMSProp || learning_rate decay eps=epsilon momentum centered=_has_mg |
    rms=nu momentum=trace mg=mu
""",
}


def _read(library: str) -> Iterator[Neighbour]:
    for line in _ROWS[library].replace("\n    ", " ").strip().splitlines():
        (name,), rules, needs, arguments, slots = (cell.split() for cell in line.split("|"))
        pairs = [each.partition("=") for each in arguments]
        slot_pairs = [each.split("=") for each in slots]
        yield Neighbour(
            rules=tuple(rule + "Optimizer" for rule in rules),
            library=library,
            name=name,
            arguments={theirs: _value(ours or theirs) for theirs, _, ours in pairs},
            slots={ours: tuple(theirs.split("/")) for ours, theirs in slot_pairs},
            needs="".join(needs),
        )


def _value(text: str) -> Any:
    is_constant = text[0].isdigit() or text in ("False", "True")
    return ast.literal_eval(text) if is_constant else _COMPUTED.get(text, text)


NEIGHBOURS = [row for library in _ROWS for row in _read(library)]
