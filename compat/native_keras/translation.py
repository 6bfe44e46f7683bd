"""to_plain_keras: from a bridged optimizer to one of Keras' own, state and all; and back."""

from __future__ import annotations

from typing import Iterable, Optional, Union

from legacy_opt.core.types import KerasOptimizer, KerasVariable, V1Optimizer

from .. import messages
from ..keras_adapters import adapter_of
from ..keras_bridge import bridge
from ..v1_optimizers import graph_names, inspection, serialization, supported
from . import counterparts, measurement, translators
from .report import Moved, Translation, TranslationReport


def to_plain_keras(
    optimizer: Union[KerasOptimizer, V1Optimizer],
    api: str = "auto",
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Returns one of Keras' own optimizers that continues the training of `optimizer`.

    The new optimizer does not need this package to train, to be saved or to be loaded. Pass it to
    ``model.compile`` again: a train step that Keras has already built uses the old one. `optimizer`
    stays as it is. The grade is measured when `grade` or `report` is read for the first time: both
    optimizers train a small problem with the settings, and from a translated state, as they are at
    this call.

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
    translator = translators.Translator(bridged, bridged._v1.original_class)
    with translator.adapter.scope(bridged):
        variables = translator.state_variables(bridged, variables)
        plain = translator.plain_like(bridged, translator.adapter.rate(bridged))
        translator.check_powers(bridged)
        carry = translator.carry if variables else None
        (carry or translator.carry_step)(bridged, plain, variables, variables)
    counts = _counts(translator, plain, sparse, learning_rate_changes)
    return Translation(plain, _report(translator, bridged, plain, variables, carry, counts))


def from_plain_keras(
    plain: KerasOptimizer,
    v1_optimizer: V1Optimizer,
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Returns a bridged optimizer that continues the training of Keras' own: the reverse direction.

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
    adapter = translator.adapter
    with adapter.scope(plain):
        bridged = bridge.to_keras(v1_optimizer, api=adapter.api, **adapter.base_arguments(plain))
        adapter.configure(plain, bridged)
        translator.check_settings(plain, bridged)
        given = None if variables is None else list(variables)
        variables = list(adapter.trained_by(plain, given))
        if not variables:
            translator.check_untrained(plain)
        carry = translator.carry_back if variables else None
        (carry or translator.carry_step)(plain, bridged, variables, variables)
    counts = _counts(translator, plain, sparse, learning_rate_changes)
    report = _report(translator, bridged, plain, variables, carry, counts, back=True)
    return Translation(bridged, report)


def _bridged(optimizer, api):
    """Returns the bridged optimizer that is to be translated."""
    if graph_names.is_bridged(optimizer):
        adapter = adapter_of(optimizer)
        if api not in ("auto", adapter.api):
            raise ValueError(
                f"api={api!r}: this optimizer is bridged to {adapter.title}. "
                "Move the state to the other Keras with save_v1_checkpoint and "
                "load_v1_checkpoint."
            )
        return optimizer
    if isinstance(optimizer, inspection.BASE):
        counterparts.counterpart_of(type(optimizer))  # explains more than to_keras
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
    counts = dict.fromkeys(counterparts.KINDS, bool(sparse))
    counts[counterparts.DENSE] = True
    counts[counterparts.RATE] = bool(learning_rate_changes)
    return counts


def _report(translator, bridged, plain, variables, carry, counts, back=False):
    """Returns a function that measures, and returns the `TranslationReport` of this moment.

    Args:
      translator: the `Translator`.
      bridged: the bridged optimizer.
      plain: Keras' own optimizer.
      variables: those whose state was translated.
      carry: the method that translated the state; None if there was none.
      counts: a dict from the kinds of training to whether they count for the grade.
      back: whether `plain` was translated to `bridged`.
    """
    adapter = translator.adapter
    arguments = adapter.base_arguments(plain)
    settings = dict(translator.settings(bridged), **arguments)
    settings["learning_rate"] = translators.rate_text(adapter.rate(plain))
    report = TranslationReport(
        translator.v1_name,
        translator.keras_name,
        settings,
        len(variables),
        translator.updates(plain),
        tuple(_moved(translator, bridged, plain, variables)),
        measurements=(),
    )
    rate = adapter.rate_now(plain) or 0.01  # a warm-up may begin with 0
    of_v1 = bridged.get_config()["optimizer"]

    def make():
        v1_optimizer = serialization.from_config(of_v1)
        scratch = bridge.to_keras(v1_optimizer, learning_rate=rate, api=adapter.api, **arguments)
        pair = scratch, translator.plain_like(scratch, rate)
        return pair[::-1] if back else pair

    def measured():
        apart = arguments.get("global_clipnorm") is not None
        results = measurement.measure(make, carry, rate, apart)
        clips = any(arguments.get(name) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
        measurements = tuple(
            measurement.Measurement(
                kind,
                result.grade,
                result.largest,
                result.distance,
                counts[kind],
                _why(translator, kind, result, clips, without_state=carry is None),
            )
            for kind, result in zip(counterparts.KINDS, results)
        )
        return report._replace(measurements=measurements)

    return measured


def _why(translator, kind, result, clips, without_state):
    """Returns why the two differ in a kind of training, or None."""
    if result.grade != measurement.DIFFERS:
        return None
    if result.error is not None:
        return "training raises " + messages.with_class(result.error).split("\n")[0]
    reasons = [translator.counterpart.reason(kind, translator.adapter.generation)]
    if without_state:
        reasons.insert(0, translator.counterpart.start)
    if clips and kind == counterparts.REPEATED:
        reasons.append(counterparts.CLIPS)
    return "; ".join(reason for reason in reasons if reason) or None


def _moved(translator, bridged, plain, variables):
    """Yields a `Moved` for each slot and shared variable."""
    if not variables:
        return
    counterpart = translator.counterpart
    found = [slot for slot, _ in translator.slots(plain, bridged, variables)]
    for slot in counterpart.slots:
        if slot in found:
            names = {"v1": slot.v1, "keras": slot.in_keras(translator.adapter.generation)}
            yield Moved(slot.v1, slot.formula.text % names, slot.formula.exact)
        elif slot.v1 in bridged.get_slot_names():
            yield Moved(slot.v1, f"none: v1 multiplies it by {slot.factor}=0", True)
    for name, argument in counterpart.powers.items():
        yield Moved(name, f"{argument} ** (iterations + 1)", False)
