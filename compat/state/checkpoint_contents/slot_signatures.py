"""Guesses which optimizer created given slots, from their names, number, shapes and dtypes.

A slot's role is its name in the optimizer, such as "m". An optimizer's signature lists the roles
and the forms (shapes and dtypes) of its slots.
"""

from __future__ import annotations

import collections
import itertools
import re
from typing import Iterable, Iterator, List, Mapping, NamedTuple, Sequence, Set, Tuple, Union

from legacy_opt import recorded
from legacy_opt.core.count_layout import CountLayout
from legacy_opt.recorded import records
from legacy_opt.recorded.records import ELEMENT, MATRIX_COLUMN, MATRIX_ROW, SCALAR

from ...plain_text import counted
from ..checkpoint_files.tensor_info import TensorInfo, is_integer
from .items import Item

# A form is the shape and dtype of a slot: a layout of recorded rules (`records`), or one of these.
# A slot may have several forms: the counts of a vector are of both kinds of `CountLayout`.
ANY, DIAGONAL, MATRIX = "any", "diagonal of axis %d of %d", "matrix of axis %d of %d"
_Tensor = Union[Item, TensorInfo]
_NUMBER = re.compile(r"_\d+$")
# BERT's two slots have names without a common stem.
_BERT = {"adam_m": "adam_m and adam_v", "adam_v": "adam_m and adam_v"}
# Maps `Signature.powers` to the names of the shared variables.
_POWERS = {0: set(), 1: {"beta1_power"}, 2: {"beta1_power", "beta2_power"}}


class Signature(NamedTuple):
    """The slots and shared variables by which an optimizer is recognised in a checkpoint."""

    label: str  # for users
    name: str  # the optimizer's name in the names of slots, such as "Adam" in "x/Adam_1"
    roles: Tuple[str, ...]  # the slots' names in the optimizer, in the order of creation
    layout: Tuple[str, ...]  # the form of each slot
    powers: int = 0  # the number of shared variables like beta1_power


def _shampoos(ranks: Iterable[int]) -> Iterator[Signature]:
    """Yields the signatures of Shampoo for variables of these ranks.

    Each axis has a slot for a matrix, or for the matrix's diagonal if the axis is long. If Shampoo
    computes powers of matrices only in some training steps, each matrix has a second slot for its
    power. The slot of the power precedes the slot of the matrix.
    """
    for rank in ranks:
        kinds_of_axes = [(MATRIX, DIAGONAL)] * rank
        for has_powers, *kinds in itertools.product((False, True), *kinds_of_axes):
            slots = [("gbar", ELEMENT)]
            for axis, kind in enumerate(kinds):
                form = kind % (axis, rank)
                if has_powers and kind is MATRIX:
                    slots.append((f"H_{axis}", form))
                slots.append((f"Gbar_{axis}", form))
            roles, layouts = zip(*slots)
            yield Signature("Shampoo", "Shampoo", roles, layouts)


# Labels of records, if the label is not the name of the class.
_LABELS = {
    "AdamGS": "Adam without powers of beta, as AdamGS",
    "AdagradDecay": "AdagradDecay, V1 layout",
    "AdagradDecayV2": "AdagradDecay, V2 layout",
    "AdamWeightDecay": "BERT's AdamWeightDecay or LAMB",
}


def _of_records() -> Iterator[Signature]:
    """Yields the signatures of recorded optimizers; first those with slots named like the class."""
    found = []
    for record in map(recorded.load, recorded.catalogue()):
        label = record.optimizer.replace("Optimizer", "")
        for slots in (group.slots for group in record.groups if group.slots):
            roles = tuple(sorted(slots, key=lambda role: slots[role].suffix))
            layouts = tuple(slots[role].layout for role in roles)
            powers = sum("_power" in name for name in record.shared)
            name = family(slots[roles[0]].suffix)
            found.append(Signature(label, name, roles, layouts, powers))
    known = set()
    for each in sorted(found, key=lambda signature: signature.label != signature.name):
        without_label = each._replace(label="")
        if without_label not in known:
            yield each._replace(label=_LABELS.get(each.label, each.label))
        known.add(without_label)
    names = {each.name for each in found}
    for each in found:
        # A user may name Nadam "Nadam"; by default its slots are named "Adam".
        may_be_renamed = each.label not in names and each.name not in _BERT.values()
        if may_be_renamed and set(each.layout) == {ELEMENT}:
            yield each._replace(name=each.label)


def family(suffix: str) -> str:
    """Returns the optimizer's name in the suffix of a slot's name ("Adam" for "Adam_1")."""
    return _BERT.get(suffix) or _NUMBER.sub("", suffix)


_SIGNATURES = (
    *_of_records(),
    # Records were made with default arguments. With other arguments, there are other slots.
    Signature("centered RMSProp", "RMSProp", ("rms", "mg", "momentum"), (ELEMENT,) * 3),
    Signature("Adafactor", "Adafactor", ("m", "vr", "vc"), (ELEMENT, MATRIX_ROW, MATRIX_COLUMN)),
    Signature("Adafactor", "Adafactor", ("m", "v"), (ELEMENT,) * 2),
    Signature("RectifiedAdam", "RectifiedAdam", ("m", "v", "vhat"), (ELEMENT,) * 3),
    Signature("AdaBelief", "AdaBelief", ("m", "v", "vhat"), (ELEMENT,) * 3),
    Signature("NovoGrad", "NovoGrad", ("m", "v", "vhat"), (ELEMENT, SCALAR, SCALAR)),
    Signature("Yogi", "Yogi", ("v",), (ELEMENT,)),
    *_shampoos(ranks=(1, 2, 3, 4)),
    # Shampoo for variables with more than four axes, or for parts of partitioned variables. The
    # roles of these slots are unknown.
    Signature("Shampoo", "Shampoo", (), ()),
    Signature("moving averages", "ExponentialMovingAverage", ("average",), (ELEMENT,)),
    Signature("averages of SWA", "SWA", ("average",), (ELEMENT,)),
    Signature("slow weights of Lookahead", "Lookahead", ("slow",), (ELEMENT,)),
    Signature("zero-debiased moving averages", "biased", ("biased",), (ANY,)),
    Signature("zero-debiased moving averages", "local_step", ("local_step",), (ANY,)),
)
_NAMES = {signature.name for signature in _SIGNATURES}


def _first_of_each_kind(signatures: Iterable[Signature]) -> Tuple[Signature, ...]:
    first = {}
    for each in signatures:
        first.setdefault((each.roles, each.layout, each.powers), each)
    return tuple(first.values())


# Signatures to compare with slots whose optimizer has an unknown name.
_FOR_UNKNOWN_NAMES = _first_of_each_kind(
    signature
    for signature in _SIGNATURES
    if signature.powers or signature.label.startswith(("Adagrad", "AdamAsync", "Momentum"))
    if signature.label != "AdagradDA"
)


def is_known(suffix: str) -> bool:
    """Returns whether the slots of a known optimizer have this suffix."""
    return family(suffix) in _NAMES


def forms(variable: _Tensor, slot: _Tensor) -> Set[str]:
    """Returns the forms of a slot of a variable, such as ELEMENT."""
    whole = variable.shape  # None if unknown
    if is_integer(slot.dtype):
        shapes = CountLayout.shapes(whole)
    else:
        shapes = {ELEMENT: whole, records.ROW: whole and whole[:1], records.SCALAR: ()}
        if len(whole or ()) > 1:
            shapes[MATRIX_ROW] = whole[:-1]
            shapes[MATRIX_COLUMN] = whole[:-2] + whole[-1:]
        lengths = () if whole is None else whole
        if whole == ():
            lengths = (1,)  # a scalar has one axis in Shampoo
        for axis, length in enumerate(lengths):
            shapes[DIAGONAL % (axis, len(lengths))] = (length,)
            shapes[MATRIX % (axis, len(lengths))] = (length, length)
    return {ANY, *(form for form, shape in shapes.items() if shape == slot.shape)}


def recognise(
    name: str, layouts: Sequence[List[Set[str]]], powers: Set[str]
) -> List[Tuple[str, Tuple[str, ...]]]:
    """Guesses each variable's optimizer from the `forms` of its slots.

    `name` is the optimizer's name in the names of all these slots, and `powers` are the names of
    the powers of beta in the checkpoint. Returns a pair for each variable: a label shown to users,
    and the slots' roles, () if they are unknown.
    """
    is_known_name = name in _NAMES
    candidates = _FOR_UNKNOWN_NAMES
    if is_known_name:
        candidates = [each for each in _SIGNATURES if each.name == name]
    candidates = [signature for signature in candidates if _POWERS[signature.powers] <= powers]
    guesses: List[Tuple[str, Tuple[str, ...]]] = [
        (f"unknown, with {counted(len(slots), 'slot')} per variable", ()) for slots in layouts
    ]
    unrecognised = set(range(len(layouts)))
    while True:
        # Several signatures may fit the slots of one variable. The best signature has the most
        # powers of beta. If several signatures have equally many powers, prefer known roles, then
        # the signature that fits the most variables.
        fits = {
            each: {i for i in unrecognised if _fits(each, layouts[i], is_known_name)}
            for each in candidates
        }
        candidates = [each for each in candidates if fits[each]]
        if not candidates:
            return guesses
        best = max(candidates, key=lambda s: (s.powers, bool(s.roles), len(fits[s])))
        equally_good = [s for s in candidates if fits[s] == fits[best] and s.powers == best.powers]
        for i in fits[best]:
            guesses[i] = _label_and_roles(equally_good, len(layouts[i]), is_known_name)
        unrecognised -= fits[best]


def recognise_roles(layouts: Sequence[Mapping[str, Set[str]]], powers: Set[str]) -> str:
    """Returns the label of the optimizer in an object-based checkpoint, which contains the roles.

    `layouts` has, for each variable, the `forms` of its slots by their roles. `powers` are the
    names of the optimizer's shared variables, including the powers of beta.
    """
    signatures_by_label = collections.defaultdict(list)
    for signature in _SIGNATURES:
        if signature.roles and _POWERS[signature.powers] <= powers:
            signatures_by_label[signature.label].append(signature)
    fitting = []
    for signatures in signatures_by_label.values():
        fits = (any(_fits_roles(each, slots) for each in signatures) for slots in layouts)
        if all(fits):
            fitting.append(signatures[0])
    if not fitting:
        return "unknown"
    return f"like {max(fitting, key=lambda signature: signature.powers).label}"


def _fits_roles(signature: Signature, slots: Mapping[str, Set[str]]) -> bool:
    roles = signature.roles
    if set(slots) != set(roles):
        return False
    return _fits(signature, [slots[role] for role in roles], is_known_name=True)


def _fits(signature: Signature, slots: Sequence[Set[str]], is_known_name: bool) -> bool:
    wanted = signature.layout
    if not wanted:
        return True
    has_two_sets = is_known_name and len(slots) == 2 * len(wanted)  # two optimizers with one name
    if len(slots) != len(wanted) and not has_two_sets:
        return False
    return all(form in its_forms for form, its_forms in zip(wanted * 2, slots))


def _label_and_roles(
    signatures: Sequence[Signature], count: int, is_known_name: bool
) -> Tuple[str, Tuple[str, ...]]:
    signatures = [each for each in signatures if len(each.layout) == count] or signatures
    label = " or ".join(dict.fromkeys(signature.label for signature in signatures))
    # If several signatures fit, the slots' roles are known only if all these signatures have the
    # same roles, like the V1 and V2 layouts of AdagradDecay.
    distinct_roles = {signature.roles for signature in signatures}
    roles = signatures[0].roles if len(distinct_roles) == 1 else ()
    if not is_known_name:
        return f"unknown, with slots like those of {label}", roles
    if roles and count == 2 * len(roles):
        label += ", two of them"
    return label, roles
