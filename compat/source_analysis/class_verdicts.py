"""What `legacy-opt audit` tells of optimizers that a code base itself defines."""

import ast

from . import name_verdicts
from .name_verdicts import CHANGE, PERSON, STAYS, Verdict
from .scopes import text_of

_REF = {"_apply_dense", "_apply_sparse", "_apply_sparse_shared", "_apply_sparse_duplicate_indices"}
_RESOURCE = {"_resource_apply_dense", "_resource_apply_sparse"}
_METHODS = _REF | _RESOURCE | {"_create_slots", "apply_gradients", "compute_gradients"}
_AT_RUN_TIME = Verdict(
    PERSON,
    "…",
    None,
    "A guess: which class it extends is told when the program runs. Is it an optimizer?",
    is_guess=True,
)
_WRITE = "Write it as one rule: legacy_opt.RuleOptimizer (docs/write_an_optimizer.md)."


class Classes:
    """The optimizers that a code base defines, over all its files.

    Args:
      names: the `Names` of the code base.
    """

    def __init__(self, names):
        self._names = names
        self._known = {}  # (module, class): `_Line` or None

    def verdict(self, definition):
        """Returns what is to be done about a class, or None if it is no optimizer."""
        line = self._line(definition)
        if line is None:
            return None
        base, name = line.root, definition.node.name
        told = f"class {name}({base.name})"
        ours = name_verdicts.verdict_on_class(name)
        if ours and base.name.startswith("tf.train."):
            advice = "If it is the one that others know, too; else: " + _judge(line).advice
            return Verdict(CHANGE, told, ours, advice)
        return _judge(line)._replace(name=told)

    def verdict_on_stranger(self, definition):
        """Returns what the table says of a class that is no optimizer by its bases, or None."""
        node = definition.node
        if not isinstance(node, ast.ClassDef) or self._line(definition) is not None:
            return None
        return name_verdicts.verdict_on_stranger(node.name, definition.module.names)

    def optimizer_base(self, definition):
        """Returns the expression among the bases of a class that makes it an optimizer."""
        return self._line(definition).expression

    def _line(self, definition):
        key = definition.module, definition.node
        if key not in self._known:
            self._known[key] = None  # for classes that are in a circle
            self._known[key] = self._find(definition)
        return self._known[key]

    def _find(self, definition):
        outer, node = definition.scope.parent, definition.node
        own = _methods(node)
        for expression in node.bases:
            for base in self._names.resolve(expression, outer):
                line = self._through(base, expression, own)
                if line is not None:
                    return line
        for expression in node.bases:
            may_be = own & _METHODS or name_verdicts.is_optimizers_name(node.name)
            if self.guess(expression, outer, may_be):
                return _Line(expression, _AT_RUN_TIME, own, "")
        return None

    def guess(self, base, scope, may_be=False):
        """Returns a `Verdict` on a class whose base is told at run time only, if it may be one.

        Args:
          base: the expression.
          scope: where it stands.
          may_be: whether more than the names in that expression speaks for an optimizer.
        """
        if not self._is_told_at_run_time(base, scope):
            return None
        return _AT_RUN_TIME if may_be or name_verdicts.speaks_of_optimizers(_words(base)) else None

    def _through(self, base, expression, own):
        """Returns the `_Line` of a class with some methods that extends `base`, or None."""
        if isinstance(base, str):
            root = name_verdicts.verdict(base)
        elif not isinstance(getattr(base, "node", None), ast.ClassDef):
            return None
        elif self._line(base) is not None:
            line = self._line(base)
            return _Line(expression, line.root, own | line.methods, line.base)
        else:
            root, base = self.verdict_on_stranger(base), base.full_name
        return None if root is None else _Line(expression, root, own, base)

    def _is_told_at_run_time(self, expression, scope):
        """Whether reading does not tell what a base is: a parameter, what a function returns."""
        if self._names.resolve(expression, scope):
            return False
        if isinstance(expression, ast.Name):
            return scope.find(expression.id) is not None  # else Python's own
        if isinstance(expression, ast.Subscript):  # Generic[T] is told
            owners = self._names.resolve(expression.value, scope)
            return all(name_verdicts.is_tensorflow(each) for each in owners)
        return isinstance(expression, (ast.Attribute, ast.Call))


class _Line:
    """From a class up to the optimizer that somebody else has written.

    Attributes:
      expression: the base in the class statement.
      root: the `Verdict` on that optimizer.
      methods: the names of all methods on the way.
      base: that optimizer's full name, as imported.
    """

    def __init__(self, expression, root, methods, base):
        self.expression, self.root, self.methods, self.base = expression, root, methods, base


def _methods(node):
    found = {each.name for each in ast.walk(node) if isinstance(each, ast.FunctionDef)}
    aliases = [each for each in node.body if isinstance(each, ast.Assign)]
    targets = (target for each in aliases for target in each.targets)
    return found | {target.id for target in targets if isinstance(target, ast.Name)}


def _words(expression):
    """Yields the names and strings in an expression."""
    for node in ast.walk(expression):
        word = getattr(node, "attr", getattr(node, "id", text_of(node)))
        if isinstance(word, str):
            yield word


def _judge(line):
    root, methods = line.root, line.methods
    if root.status == PERSON:
        return root
    if root.name.startswith("legacy_opt."):
        return Verdict(STAYS, root.name, None, "")
    if root.name.startswith("tf.keras."):
        return _judge_keras(line)
    if not root.name.startswith(("tf.train.", "tf.contrib.opt.")):
        return root
    is_base = root.name == "tf.train.Optimizer"
    if "_apply_dense" in methods and "_resource_apply_dense" not in methods:
        what = "has no update" if is_base else "leaves its base's update"
        text = "It %s for resource variables, TensorFlow 2's: _resource_apply_dense. %s"
        return Verdict(PERSON, root.name, None, text % (what, _WRITE))
    applies = "apply_gradients" in methods
    if is_base and not (applies or methods & (_REF | _RESOURCE)):
        text = "It has neither apply_gradients nor _resource_apply_dense: whose has it?"
        return Verdict(PERSON, root.name, None, text)
    status = STAYS if root.status == STAYS else CHANGE
    advice = "As it is, if what it calls is public."
    if is_base and not applies and not methods & {"_resource_apply_sparse"}:
        advice += " It takes no sparse gradients of resource variables (_resource_apply_sparse)."
    return Verdict(status, root.name, root.instead, advice)


def _judge_keras(line):
    if ".legacy." in line.base or not line.methods & (_RESOURCE | {"get_updates"}):
        return Verdict(STAYS, line.root.name, None, "Keras' own base class.")
    text = "From TensorFlow 2.11 on that is its base; Keras 3 has none such."
    return Verdict(PERSON, line.root.name, "tf.keras.optimizers.legacy.Optimizer", text)
