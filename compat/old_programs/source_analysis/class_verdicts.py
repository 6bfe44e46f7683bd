"""Judges the optimizer classes in the code that `legacy-opt audit` checks.

A `Verdict` says whether a class can stay, must be changed or needs manual work.
"""

from __future__ import annotations

import ast
from typing import Any, Dict, Iterator, NamedTuple, Optional, Set, Tuple

from . import name_verdicts
from .name_verdicts import CHANGE, KERAS_1, KERAS_LEGACY, MANUAL, STAYS, WRITE_A_RULE, Verdict
from .scopes import Definition, Meaning, NameResolver, Scope, last_name, text_of

# Methods that update ref variables, and methods that update resource variables.
_REF = {"_apply_dense", "_apply_sparse", "_apply_sparse_shared", "_apply_sparse_duplicate_indices"}
_RESOURCE = {"_resource_apply_dense", "_resource_apply_sparse"}
_METHODS = _REF | _RESOURCE | {"_create_slots", "apply_gradients", "compute_gradients"}
_UNKNOWN_BASE = Verdict(
    status=MANUAL,
    name="…",
    instead=None,
    advice="A guess: the base class is known only at run time. Check whether it is an optimizer.",
    is_guess=True,
)


class Classes:
    """The optimizer classes that the audited files define."""

    def __init__(self, names: NameResolver) -> None:
        self._names = names
        self._ancestries: Dict[Tuple[Any, ast.AST], Optional[_Ancestry]] = {}

    def verdict(self, definition: Definition) -> Optional[Verdict]:
        """Returns the `Verdict` on a class, or None if the class does not extend an optimizer."""
        ancestry = self._ancestry(definition)
        if ancestry is None:
            return None
        name = definition.node.name
        root_name = ancestry.root.name
        shown_name = f"class {name}({root_name})"
        replacement = name_verdicts.replacement_of_class(name)
        if replacement and root_name.startswith("tf.train."):
            advice = "Replace it only if it is a copy of the original. Otherwise: "
            advice += _judge(ancestry).advice
            return Verdict(CHANGE, shown_name, replacement, advice)
        return _judge(ancestry)._replace(name=shown_name)

    def verdict_on_unrelated_class(self, definition: Definition) -> Optional[Verdict]:
        """Judges a class by its name. Returns None if the class extends an optimizer."""
        node = definition.node
        if not isinstance(node, ast.ClassDef) or self._ancestry(definition) is not None:
            return None
        return name_verdicts.verdict_on_unrelated_class(node.name, definition.module.names)

    def class_of_legacy_opt(self, definition: Definition) -> Optional[str]:
        """Returns the name of the legacy_opt class that is the base or replacement of a class.

        Without such a class, returns None or the name of another optimizer. Also returns None for
        functions, and for classes that override `apply_gradients` of a base class of legacy_opt.
        """
        if not isinstance(definition.node, ast.ClassDef):
            return None
        ancestry = self._ancestry(definition)
        if ancestry is None:
            verdict = self.verdict_on_unrelated_class(definition)
            return verdict and verdict.instead
        root = ancestry.root.name
        if root.startswith("tf.train."):
            return self.verdict(definition).instead
        if "apply_gradients" in ancestry.methods:
            return None
        return ancestry.root.instead or root

    def optimizer_base(self, definition: Definition) -> ast.expr:
        """Returns the expression of the base class that makes a class an optimizer."""
        return self._ancestry(definition).expression

    def _ancestry(self, definition: Definition) -> Optional[_Ancestry]:
        key = definition.module, definition.node
        if key not in self._ancestries:
            self._ancestries[key] = None  # in case classes extend each other in a circle
            self._ancestries[key] = self._find_ancestry(definition)
        return self._ancestries[key]

    def _find_ancestry(self, definition: Definition) -> Optional[_Ancestry]:
        outer = definition.scope.parent or definition.module.scope
        node = definition.node
        methods = _method_names(node)
        for expression in node.bases:
            for base in self._names.resolve(expression, outer):
                ancestry = self._ancestry_through(base, expression, methods)
                if ancestry is not None:
                    return ancestry
        is_likely = bool(methods & _METHODS or name_verdicts.OPTIMIZER.search(node.name))
        for expression in node.bases:
            if self.guess(expression, outer, is_likely):
                return _Ancestry(expression, _UNKNOWN_BASE, methods, base="")
        return None

    def guess(self, base: ast.expr, scope: Scope, is_likely: bool = False) -> Optional[Verdict]:
        """Returns a `Verdict` if a base class that is known only at run time may be an optimizer.

        Unless the methods or the name of the derived class suggest an optimizer (`is_likely`), a
        name or a string in the expression `base` must do so.
        """
        if not self._is_known_at_run_time_only(base, scope):
            return None
        is_likely = is_likely or any("optimizer" in word.lower() for word in _words(base))
        return _UNKNOWN_BASE if is_likely else None

    def _ancestry_through(
        self, base: Meaning, expression: ast.expr, methods: Set[str]
    ) -> Optional[_Ancestry]:
        """Returns the `_Ancestry` of a class, or None if the base class is not an optimizer."""
        if isinstance(base, str):
            root = name_verdicts.verdict(base)
        elif not (isinstance(base, Definition) and isinstance(base.node, ast.ClassDef)):
            return None
        elif self._ancestry(base) is not None:  # it extends an optimizer
            ancestry = self._ancestry(base)
            return _Ancestry(expression, ancestry.root, methods | ancestry.methods, ancestry.base)
        else:  # its name may be that of an optimizer
            root = self.verdict_on_unrelated_class(base)
            base = base.full_name
        return None if root is None else _Ancestry(expression, root, methods, base)

    def _is_known_at_run_time_only(self, expression: ast.expr, scope: Scope) -> bool:
        """Returns whether a base class is known only at run time, such as the result of a call."""
        if self._names.resolve(expression, scope):
            return False  # it has a known meaning
        if isinstance(expression, ast.Name):
            return scope.find(expression.id) is not None  # an unbound name is a builtin
        if isinstance(expression, ast.Subscript):
            # If `bases` has no known meaning, `bases[0]` may be an optimizer. `Generic[T]` has one.
            owners = self._names.resolve(expression.value, scope)
            return all(name_verdicts.is_tensorflow(each) for each in owners)
        return isinstance(expression, (ast.Attribute, ast.Call))


class _Ancestry(NamedTuple):
    """The base classes of a class, up to the root.

    The root is the first base class that is judged by its name alone, or is known only at run time.
    """

    expression: ast.expr  # of the base class in the class statement
    root: Verdict  # on the root
    methods: Set[str]  # all methods of the class and of the base classes below the root
    base: str  # the full name under which the code imports the root; "" if known only at run time


def _method_names(node: ast.AST) -> Set[str]:
    names = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef)}
    assignments = [each for each in node.body if isinstance(each, ast.Assign)]
    targets = (target for each in assignments for target in each.targets)
    return names | {target.id for target in targets if isinstance(target, ast.Name)}


def _words(expression: ast.expr) -> Iterator[str]:
    """Yields the names and strings in an expression."""
    for node in ast.walk(expression):
        word = last_name(node) or text_of(node)
        if word:
            yield word


def _judge(ancestry: _Ancestry) -> Verdict:
    root, methods = ancestry.root, ancestry.methods
    if root.status == MANUAL:
        return root
    if root.name.startswith("legacy_opt."):
        return Verdict(STAYS, root.name, None, "")
    if root.name.startswith("tf.keras."):
        return _judge_keras(ancestry)
    if not root.name.startswith(("tf.train.", "tf.contrib.opt.")):
        return root
    extends_tf_optimizer = root.name == "tf.train.Optimizer"
    if "_apply_dense" in methods and "_resource_apply_dense" not in methods:
        problem = "defines no update" if extends_tf_optimizer else "inherits its base's update"
        text = (
            f"It {problem} for resource variables (_resource_apply_dense), TensorFlow 2's default. "
            "In a graph with ref variables it runs unchanged (`legacy-opt run`, or "
            f"tf.compat.v1.disable_resource_variables()). {WRITE_A_RULE}"
        )
        return Verdict(MANUAL, root.name, None, text)
    overrides_apply = "apply_gradients" in methods
    has_updates = overrides_apply or methods & (_REF | _RESOURCE)
    if extends_tf_optimizer and not has_updates:
        text = (
            "It defines neither apply_gradients nor _resource_apply_dense: find out where these "
            "methods are defined."
        )
        return Verdict(MANUAL, root.name, None, text)
    status = STAYS if root.status == STAYS else CHANGE
    advice = "Keep it, if it calls only public functions of TensorFlow."
    has_sparse_updates = overrides_apply or "_resource_apply_sparse" in methods
    if extends_tf_optimizer and not has_sparse_updates:
        advice += " It lacks sparse resource updates (_resource_apply_sparse)."
    return Verdict(status, root.name, root.instead, advice)


def _judge_keras(ancestry: _Ancestry) -> Verdict:
    if "get_updates" in ancestry.methods and not ancestry.methods & _RESOURCE:
        return Verdict(MANUAL, ancestry.root.name, None, KERAS_1)
    if ".legacy." in ancestry.base or not ancestry.methods & _RESOURCE:
        return Verdict(STAYS, ancestry.root.name, None, "It extends Keras' base class.")
    last = ancestry.root.name.rpartition(".")[2]
    legacy_name = last if last in KERAS_LEGACY.split() else "Optimizer"
    text = "From TensorFlow 2.11 on, extend this base class. Keras 3 has no such base class."
    if ".python." not in ancestry.base:  # tf-keras does not have tensorflow.python.keras
        text += " With Keras 2 (tf-keras), `legacy-opt run` runs it unchanged."
    return Verdict(MANUAL, ancestry.root.name, f"tf.keras.optimizers.legacy.{legacy_name}", text)
