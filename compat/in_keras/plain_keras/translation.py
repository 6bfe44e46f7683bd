"""Translates bridged optimizers and their state to Keras' own optimizers, and back.

`to_keras` makes bridged optimizers; a plain optimizer is an instance of one of Keras' own classes.
"""

from __future__ import annotations

from typing import Any, Callable, Iterable, Iterator, List, Optional, Sequence, Tuple, Union

from legacy_opt.core.types import KerasOptimizer, KerasVariable, V1Optimizer

from .. import bridge
from ..keras_adapters import adapter_of
from ..keras_bridge import configuration
from ..v1_optimizers import graph_names, inspection, owned_state, serialization, supported
from . import counterparts, measurement, translators
from .report import Moved, Translation, TranslationReport


def to_plain_keras(
    optimizer: Union[KerasOptimizer, V1Optimizer],
    api: str = "auto",
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Creates one of Keras' own optimizers that continues the training of `optimizer`.

    The new optimizer does not need this package to train, to be saved or to be loaded. `optimizer`
    does not change, except that it is built if `variables` are given and it is not built yet. Pass
    the new optimizer to ``model.compile``, because a train function that Keras has already built
    would use the old optimizer.

    The grade of the result says how exactly the new optimizer continues the training. The grade is
    measured when `grade` or `report` is read for the first time. For this purpose, two copies train
    a small problem side by side: a copy of `optimizer` and a copy of the new optimizer.

    Args:
      optimizer: an optimizer made by `to_keras`, or a v1 optimizer. An optimizer made by `to_keras`
        is translated with its state: slots, `iterations`, the current learning rate and
        hyperparameters. For a v1 optimizer, only the settings are translated. `to_keras` refuses a
        v1 optimizer that has trained where it is called.
      api: the kind of Keras optimizer to create if `optimizer` is a v1 optimizer; see `to_keras`.
        An optimizer made by `to_keras` keeps its kind.
      variables: the variables to train, if `optimizer` is not built yet. Both optimizers are built
        for these variables, and the slots of the new optimizer get v1's starting values. If None,
        the slots of the new optimizer start with Keras' values.
      sparse: whether the grade should include sparse gradients (embeddings).
      learning_rate_changes: whether the grade should include changes of the learning rate. None
        includes them if the current learning rate is a schedule or function.

    Returns:
      A `Translation` with the attributes `optimizer`, `grade` and `report`.

    Raises:
      TypeError: `optimizer` is neither a v1 optimizer nor made by `to_keras`.
      ValueError: Keras has no counterpart, or the state cannot be translated. The message says why.
    """
    bridged = _bridged(optimizer, api)
    translator = translators.Translator(bridged, bridged._v1.original_class)
    with translator.adapter.scope(bridged):
        variables = translator.state_variables(bridged, variables)
        plain = translator.plain_like(bridged, translator.adapter.rate(bridged))
        translator.check_powers(bridged)
        carry = translator.carry if variables else None
        transfer = carry or translator.carry_step  # `carry` copies `iterations`, too
        transfer(bridged, plain, variables, variables)
    counted = _counted_kinds(translator, plain, sparse, learning_rate_changes)
    return Translation(plain, _report(translator, bridged, plain, variables, carry, counted))


def from_plain_keras(
    plain: KerasOptimizer,
    v1_optimizer: V1Optimizer,
    variables: Optional[Iterable[KerasVariable]] = None,
    sparse: bool = True,
    learning_rate_changes: Optional[bool] = None,
) -> Translation:
    """Creates a bridged optimizer that continues the training of one of Keras' own optimizers.

    `to_keras` makes bridged optimizers. This function is the reverse of `to_plain_keras`.

    Args:
      plain: one of Keras' own optimizers, of a class that `to_plain_keras` can return.
      v1_optimizer: a v1 optimizer with the settings that `plain` has now. Its own state is not
        used.
      variables: the variables that `plain` has trained. In Keras 2 they are required if `plain` or
        a loaded checkpoint has slots, because Keras 2 optimizers do not store references to their
        variables. In Keras 3 they are needed only if `plain` is not built yet: `plain` is then
        built for these variables, which also restores the state of a loaded checkpoint.
      sparse: see `to_plain_keras`.
      learning_rate_changes: see `to_plain_keras`.

    Returns:
      A `Translation`, whose `optimizer` is the result of `to_keras(v1_optimizer)` with the state of
      `plain`.

    Raises:
      TypeError: an argument has the wrong type.
      ValueError: `plain` is not of the class to which `to_plain_keras` translates `v1_optimizer`,
        or has settings that differ from those of `v1_optimizer`; or `variables` are missing.
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
        settings_only = owned_state.unbound_copy(v1_optimizer)
        bridged = bridge.to_keras(settings_only, api=adapter.api, **adapter.base_arguments(plain))
        adapter.configure(plain, bridged)
        translator.check_settings(plain, bridged)
        variables = None if variables is None else list(variables)
        variables = list(adapter.trained_variables(plain, variables))
        if not variables:
            translator.check_untrained(plain)
        carry = translator.carry if variables else None
        transfer = carry or translator.carry_step  # `carry` copies `iterations`, too
        transfer(plain, bridged, variables, variables)
    counted = _counted_kinds(translator, plain, sparse, learning_rate_changes)
    report = _report(translator, bridged, plain, variables, carry, counted, is_reverse=True)
    return Translation(bridged, report)


def _bridged(optimizer: Any, api: str) -> KerasOptimizer:
    """Returns `optimizer` if it is bridged; if it is a v1 optimizer, bridges it."""
    if graph_names.is_bridged(optimizer):
        adapter = adapter_of(optimizer)
        if api not in ("auto", adapter.api):
            raise ValueError(
                f"api={api!r}: this optimizer is bridged to {adapter.title}. Move the state to the "
                "other Keras with save_v1_checkpoint and load_v1_checkpoint."
            )
        return optimizer
    if isinstance(optimizer, inspection.BASE):
        counterparts.counterpart_of(type(optimizer))  # raises better errors than to_keras
        return bridge.to_keras(optimizer, api=api)
    inner = getattr(optimizer, "inner_optimizer", None)
    hint = " Pass the optimizer in it: optimizer.inner_optimizer." if inner else ""
    raise TypeError(
        "to_plain_keras takes an optimizer made by to_keras, or a tf.compat.v1.train.Optimizer, "
        f"got {optimizer!r}.{hint}"
    )


def _counted_kinds(
    translator: translators.Translator,
    plain: KerasOptimizer,
    sparse: bool,
    learning_rate_changes: Optional[bool],
) -> Tuple[str, ...]:
    """Returns the kinds of training that count for the grade."""
    if learning_rate_changes is None:
        learning_rate_changes = not translator.has_fixed_rate(plain)
    sparse_kinds = (counterparts.ROWS, counterparts.REPEATED) if sparse else ()
    rate_kinds = (counterparts.RATE,) if learning_rate_changes else ()
    return (counterparts.DENSE, *sparse_kinds, *rate_kinds)


def _report(
    translator: translators.Translator,
    bridged: KerasOptimizer,
    plain: KerasOptimizer,
    variables: List[KerasVariable],
    carry: Optional[Callable[..., None]],
    counted: Sequence[str],
    is_reverse: bool = False,
) -> Callable[[], TranslationReport]:
    """Returns a function that measures the grade and returns a `TranslationReport`.

    The rest of the report describes the optimizers at the time when `_report` is called. `carry` is
    the method that translated the state of `variables`, or None. `counted` are the kinds of
    training that count for the grade.
    """
    adapter = translator.adapter
    arguments = adapter.base_arguments(plain)
    settings = dict(translator.settings(bridged), **arguments)
    settings["learning_rate"] = translators.rate_text(adapter.rate(plain))
    report = TranslationReport(
        v1=translator.v1_name,
        keras=translator.keras_name,
        settings=settings,
        variables=len(variables),
        iterations=translator.updates(plain),
        state=tuple(_moved_state(translator, bridged, plain, variables)),
        measurements=(),
    )
    rate = adapter.rate_now(plain) or 0.01  # a schedule with warm-up may begin with 0
    v1_configuration = configuration.with_v1({}, bridged._v1, adapter.keras)["optimizer"]

    def make() -> Tuple[Any, Any]:
        v1_optimizer = serialization.from_config(v1_configuration)
        scratch = bridge.to_keras(v1_optimizer, learning_rate=rate, api=adapter.api, **arguments)
        scratch_plain = translator.plain_like(scratch, rate)
        return (scratch_plain, scratch) if is_reverse else (scratch, scratch_plain)

    def measured_report() -> TranslationReport:
        are_separate = arguments.get("global_clipnorm") is not None
        results = measurement.measure(make, carry, rate, are_separate)
        clips = any(arguments.get(name) for name in ("clipnorm", "clipvalue", "global_clipnorm"))
        measurements = []
        for each in results:
            why = _why(translator, each, clips, without_state=carry is None)
            measurements.append(each._replace(counts=each.kind in counted, why=why))
        return report._replace(measurements=tuple(measurements))

    return measured_report


def _why(
    translator: translators.Translator,
    result: measurement.Measurement,
    clips: bool,
    without_state: bool,
) -> Optional[str]:
    """Returns why the two optimizers differ in a kind of training, or None."""
    if result.grade != measurement.DIFFERS or result.why:
        return result.why
    reasons = [translator.counterpart.reason(result.kind, translator.adapter.api)]
    if without_state:
        reasons.insert(0, translator.counterpart.start)
    if clips and result.kind == counterparts.REPEATED:
        reasons.append(counterparts.CLIPS)
    return "; ".join(reason for reason in reasons if reason) or None


def _moved_state(
    translator: translators.Translator,
    bridged: KerasOptimizer,
    plain: KerasOptimizer,
    variables: List[KerasVariable],
) -> Iterator[Moved]:
    """Yields a `Moved` for each slot and shared variable."""
    if not variables:
        return
    counterpart = translator.counterpart
    kept_slots = [slot for slot, _ in translator.slots(plain, bridged, variables)]
    for slot, name in counterpart.slots(translator.adapter.api).items():
        if slot in kept_slots:
            formula = counterpart.formula(slot)
            yield Moved(slot, formula.text % {"v1": slot, "keras": name}, formula.exact)
        elif slot in bridged.get_slot_names():
            reason = f"none: v1 multiplies it by {counterpart.factors[slot]}=0"
            yield Moved(slot, reason, exact=True)
    for name, argument in counterpart.powers.items():
        yield Moved(name, f"{argument} ** (iterations + 1)", exact=False)
