"""to_plain_keras: from a bridged optimizer to one of Keras' own, state and all; and back."""

from __future__ import annotations

from typing import Iterable, Optional, Union

from legacy_opt.core.types import KerasOptimizer, KerasVariable, V1Optimizer

from .. import messages
from ..keras_bridge import bridge
from ..v1_optimizers import graph_names, inspection, owned_state, serialization, supported
from . import counterparts as translations
from . import measurement, translators
from .report import Moved, Translation, TranslationReport


def to_plain_keras(
    optimizer: Union[KerasOptimizer, V1Optimizer],
    api: str = "auto",
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Returns Keras' own optimizer that goes on where `optimizer` is, and tells how well it does.

    It needs this package no more, neither to train nor to be saved or loaded. Hand it to
    ``model.compile`` anew: a train step that Keras has built already holds the old one. `optimizer`
    stays as it is. The grade is measured at the call: with these settings, both go on from the
    translated state of a small problem.

    Args:
      optimizer: an optimizer made by `to_keras`, which is translated with its state: slots,
        `iterations`, the present learning rate and hyperparameters. Or a v1 optimizer, of which
        the settings are: its state belongs to a graph.
      api: which Keras a v1 optimizer goes to, as for `to_keras`. A bridged one stays in its own.
      variables: those to train, for an optimizer that is not built yet. Both are built for them,
        and Keras' one gets v1's starting values; without, it starts from Keras' own.
      sparse: whether the grade has to hold for sparse gradients (embeddings), too.
      learning_rate_changes: whether it has to hold for changes of the learning rate, too; None: if
        that is a schedule or function now.

    Returns:
      A `Translation`: `optimizer`, `grade`, `report`.

    Raises:
      TypeError: `optimizer` is something else.
      ValueError: Keras has no counterpart, or the state cannot be translated; the message tells
        why.
    """
    bridged = _bridged(optimizer, api)
    translator = translators.Translator(bridged, owned_state.original_class(bridged._adopted))
    with translator.side.scope(bridged):
        variables = translator.state_variables(bridged, variables)
        plain = translator.plain_like(bridged, translator.side.rate(bridged))
        translator.check_powers(bridged)
        carry = translator.carry if variables else None
        (carry or translator.carry_step)(bridged, plain, variables, variables)
    counts = _counts(translator, plain, sparse, learning_rate_changes)
    figures = _figures(translator, bridged, plain, carry, counts)
    report = _report(translator, bridged, plain, variables, figures)
    return Translation(plain, report.grade, report)


def from_plain_keras(
    plain: KerasOptimizer,
    v1_optimizer: V1Optimizer,
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Returns a bridged optimizer that goes on where Keras' own is: `to_plain_keras` backwards.

    Args:
      plain: one of Keras' own optimizers, as `to_plain_keras` returns them.
      v1_optimizer: a v1 optimizer with the settings that `plain` has now.
      variables: those that `plain` has trained. A Keras 2 optimizer does not know them, and one
        of Keras 3 is built for them, if it is not: a state that was restored is there only then.
      sparse: as for `to_plain_keras`.
      learning_rate_changes: as for `to_plain_keras`.

    Returns:
      A `Translation`, whose `optimizer` is what `to_keras(v1_optimizer)` returns, with the state.

    Raises:
      TypeError: an argument is something else.
      ValueError: `plain` is not what the v1 optimizer would become, or has other settings, or
        `variables` are missing.
    """
    if not isinstance(v1_optimizer, inspection.BASE):
        raise TypeError(
            "from_plain_keras takes a tf.compat.v1.train.Optimizer as v1_optimizer, got "
            f"{v1_optimizer!r}."
        )
    supported.check_class(v1_optimizer)
    translator = translators.Translator(plain, type(v1_optimizer))
    translator.check_class(plain)
    side = translator.side
    with side.scope(plain):
        bridged = bridge.to_keras(v1_optimizer, api=side.api, **side.base_arguments(plain))
        side.configure(plain, bridged)
        translator.check_settings(plain, bridged)
        given = None if variables is None else list(variables)
        variables = list(side.trained_by(plain, given))
        if not variables:
            translator.check_untrained(plain)
        carry = translator.carry_back if variables else None
        (carry or translator.carry_step)(plain, bridged, variables, variables)
    counts = _counts(translator, plain, sparse, learning_rate_changes)
    figures = _figures(translator, bridged, plain, carry, counts, back=True)
    report = _report(translator, bridged, plain, variables, figures)
    return Translation(bridged, report.grade, report)


def _bridged(optimizer, api):
    """Returns the bridged optimizer that is to be translated."""
    if graph_names.is_bridged(optimizer):
        kind, own_api = optimizer._kind
        if api not in ("auto", own_api):
            raise ValueError(
                f"api={api!r}: this optimizer is bridged to {kind}, where its state stays. To "
                "go to the other Keras, take the state with save_v1_checkpoint and "
                "load_v1_checkpoint."
            )
        return optimizer
    if isinstance(optimizer, inspection.BASE):
        translations.relative_of(type(optimizer))  # tells more than to_keras, where there is none
        return bridge.to_keras(optimizer, api=api)
    inner = getattr(optimizer, "inner_optimizer", None)
    raise TypeError(
        "to_plain_keras takes an optimizer made by to_keras, or a "
        "tf.compat.v1.train.Optimizer, got "
        f"{optimizer!r}.{' Pass the one inside it: optimizer.inner_optimizer.' if inner else ''}"
    )


def _counts(translator, plain, sparse, learning_rate_changes):
    """Returns a dict from the kinds of training to whether they count for the grade."""
    if learning_rate_changes is None:
        learning_rate_changes = not translator.has_fixed_rate(plain)
    counts = dict.fromkeys(translations.KINDS, bool(sparse))
    counts[translations.DENSE] = True
    counts[translations.RATE] = bool(learning_rate_changes)
    return counts


def _figures(translator, bridged, plain, carry, counts, back=False):
    """Measures, and returns a list of `Figure`.

    Args:
      translator: the `Translator`.
      bridged: the bridged optimizer, one side.
      plain: Keras' own, the other side.
      carry: the method that translated the state; None if there was none.
      counts: which kinds of training count for the grade.
      back: whether `plain` was the one to be translated.
    """
    side = translator.side
    base = side.base_arguments(plain)
    rate = side.rate_now(plain) or 0.01  # a warm-up may begin with 0
    settings = bridged.get_config()["optimizer"]

    def make():
        v1_optimizer = serialization.from_config(settings)
        scratch = bridge.to_keras(v1_optimizer, learning_rate=rate, api=side.api, **base)
        pair = scratch, translator.plain_like(scratch, rate)
        return pair[::-1] if back else pair

    apart = base.get("global_clipnorm") is not None
    ways = measurement.measure(make, carry, rate, apart)
    clips = any(base.get(name) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
    return [
        measurement.Figure(
            kind,
            way.grade,
            way.largest,
            way.moved,
            counts[kind],
            _why(translator, kind, way, clips, began_anew=carry is None),
        )
        for kind, way in zip(translations.KINDS, ways)
    ]


def _why(translator, kind, way, clips, began_anew):
    """Returns why the two differ in a kind of training, or None."""
    if way.grade != measurement.DIFFERS:
        return None
    if way.error is not None:
        return "training raises " + messages.with_class(way.error).split("\n")[0]
    reasons = [translator.relative.reason(kind, translator.side.generation)]
    if began_anew:
        reasons.insert(0, translator.relative.start)
    if clips and kind == translations.REPEATED:
        reasons.append(translations.CLIPS)
    return "; ".join(reason for reason in reasons if reason) or None


def _report(translator, bridged, plain, variables, figures):
    side = translator.side
    settings = dict(translator.settings(bridged), **side.base_arguments(plain))
    settings["learning_rate"] = translators.rate_text(side.rate(plain))
    return TranslationReport(
        translator.v1_name,
        translator.keras_name,
        settings,
        len(variables),
        translator.updates(plain),
        tuple(_moved(translator, bridged, plain, variables)),
        tuple(figures),
    )


def _moved(translator, bridged, plain, variables):
    """Yields what became of each slot and shared variable."""
    if not variables:
        return
    relative = translator.relative
    found = [slot for slot, _ in translator.slots(plain, bridged, variables)]
    for slot in relative.slots:
        if slot in found:
            names = {"v1": slot.v1, "keras": slot.in_keras(translator.side.generation)}
            yield Moved(slot.v1, slot.formula.text % names, slot.formula.exact)
        elif slot.v1 in bridged.get_slot_names():
            yield Moved(slot.v1, f"none: v1 multiplies it by {slot.factor}=0", True)
    for name, argument in relative.powers.items():
        yield Moved(name, f"{argument} ** (iterations + 1)", False)
