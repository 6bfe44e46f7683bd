"""Finds lines of BERT's and ALBERT's scripts that would increment the global step a second time.

The method `apply_gradients` of BERT's `AdamWeightDecayOptimizer` and of ALBERT's `LAMBOptimizer`
ignores its argument `global_step`. The scripts increment the global step after the call::

    train_op = optimizer.apply_gradients(zip(grads, tvars), global_step=global_step)
    new_global_step = global_step + 1
    train_op = tf.group(train_op, [global_step.assign(new_global_step)])

The classes of legacy_opt increment the global step themselves, like TensorFlow's own optimizers.

Nothing orders the `assign` after the operations that compute a learning rate from the global step,
so the increment may run first. `races` finds such increments. It also finds them in methods
`apply_gradients`: the method of AdaBound computes bias corrections from the step, and returns
`tf.group(*updates, step.assign_add(1))`.
"""

from __future__ import annotations

import ast
from typing import Any, Iterable, Iterator, List, Set, Tuple

from .class_verdicts import Classes
from .instances import Instances, argument
from .name_verdicts import CHANGE, Verdict, is_tensorflow
from .scopes import Module, NameResolver, Scope, alternatives, last_name

RACE = (
    "Nothing orders this increment of the global step after the values that are computed from the "
    'step, so two runs may differ (`legacy-opt docs weight_decay`, "BERT\'s schedule").'
)
_Applied = Tuple[ast.Call, str, ast.expr]  # a call, the class of the optimizer, and the step
_CLASSES = ("legacy_opt.AdamWeightDecayOptimizer", "legacy_opt.LAMBOptimizer")
_CASTS = ("cast", "to_float", "to_double")
_STEP_FUNCTIONS = ("get_global_step", "get_or_create_global_step", "create_global_step")
_ADVICE = (
    "This line increments the global_step that is passed to {method} in line {line}. The class of "
    "legacy_opt increments it, too (the original class does not), so every training step counts "
    "twice. Delete this line, or pass no global_step to {method}."
)


def verdicts(
    module: Module, names: NameResolver, classes: Classes
) -> Iterator[Tuple[ast.Call, Verdict]]:
    """Yields (call, `Verdict`) for calls that increment a global step a second time, or in a race.

    A second increment is found if it is in the same function as the call that passes the global
    step to the optimizer, or if both are at module level.
    """
    for scope, nodes in _nodes_by_scope(module):
        steps = _Steps(scope, names)
        calls, increments = steps.calls_and_increments(nodes)
        if increments:
            optimizers = Instances(names, classes, _CLASSES)
            applied = [each for call in calls for each in _applied(call, scope, optimizers)]
            for call, step in increments:
                yield from _counted_twice(call, step, applied, steps, module)
    for call in _racing_increments(module, names):
        yield call, Verdict(CHANGE, "global_step", None, RACE)


def races(modules: Iterable[Module]) -> Iterator[Tuple[str, int]]:
    """Yields (path, line) of each increment of a global step that races with a reader of the step.

    The increment is in an argument of `tf.group`, or in a method `apply_gradients`. In the same
    function, a learning rate is computed from the same step. In a method `apply_gradients`, a cast
    of the step is a reader, too. No control dependency orders the increment after the reader.
    """
    modules = list(modules)
    names = NameResolver(modules)
    for module in modules:
        for call in _racing_increments(module, names):
            yield module.source.place(call.lineno)


def _racing_increments(module: Module, names: NameResolver) -> Iterator[ast.Call]:
    for scope, nodes in _nodes_by_scope(module):
        steps = _Steps(scope, names)
        calls, increments = steps.calls_and_increments(nodes)
        in_apply = scope.name.endswith(".apply_gradients")
        readers = ("_decay", "piecewise_constant") + (_CASTS if in_apply else ())
        read = [step for call in calls for step in _arguments_of(call, readers)]
        groups = (call for call in calls if in_apply or last_name(call.func) == "group")
        unordered = _within(groups) - _within(node for node in nodes if _orders(node))
        for call, step in increments:
            if call in unordered and any(steps.are_the_same(step, each) for each in read):
                yield call


def _arguments_of(call: ast.Call, functions: Tuple[str, ...]) -> List[ast.expr]:
    """Returns the arguments of a call if the function's name ends like `functions`, or []."""
    is_wanted = last_name(call.func).endswith(functions)
    return call.args + [each.value for each in call.keywords] if is_wanted else []


def _orders(node: ast.AST) -> bool:
    """Returns whether a node is `with tf.control_dependencies(…)`."""
    items = node.items if isinstance(node, ast.With) else []
    calls = [each.context_expr for each in items if isinstance(each.context_expr, ast.Call)]
    return any(last_name(call.func) == "control_dependencies" for call in calls)


def _within(nodes: Iterable[ast.AST]) -> Set[ast.AST]:
    return {inner for node in nodes for inner in ast.walk(node)}


def _counted_twice(
    call: ast.Call, step: ast.AST, applied: List[_Applied], steps: _Steps, module: Module
) -> Iterator[Tuple[ast.Call, Verdict]]:
    for apply, name, passed in applied:
        if steps.are_the_same(step, passed):
            _, line = module.source.place(apply.lineno)
            advice = _ADVICE.format(method=apply.func.attr, line=line)
            yield call, Verdict(CHANGE, name, None, advice)
            return


def _applied(call: ast.Call, scope: Scope, optimizers: Instances) -> Iterator[_Applied]:
    """Yields (call, class, step) if a call passes a global step to one of `_CLASSES`."""
    if getattr(call.func, "attr", "") not in ("apply_gradients", "minimize"):
        return
    step = argument(call, 1, "global_step")
    if step is None:
        return
    name = optimizers.first_class(call.func.value, scope)
    if name is not None:
        yield call, name, step


def _nodes_by_scope(module: Module) -> Iterator[Tuple[Scope, List[ast.AST]]]:
    """Yields (scope, list of nodes) of a module, and of its classes and functions."""
    yield module.scope, list(_nodes(module.source.tree, module))
    for definition, scope in module.scopes.items():
        yield scope, list(_nodes(definition, module))


def _nodes(definition: ast.AST, module: Module) -> Iterator[ast.AST]:
    """Yields the nodes of a module, class or function, without nodes of nested definitions."""
    waiting = list(ast.iter_child_nodes(definition))
    while waiting:
        node = waiting.pop()
        yield node
        if node not in module.scopes:
            waiting += ast.iter_child_nodes(node)


class _Steps:
    """Compares the global steps in the code of one scope."""

    def __init__(self, scope: Scope, names: NameResolver) -> None:
        self._scope, self._names = scope, names

    def calls_and_increments(
        self, nodes: Iterable[ast.AST]
    ) -> Tuple[List[ast.Call], List[Tuple[ast.Call, ast.expr]]]:
        """Returns the calls among nodes, and a pair (call, step) for each increment of a step."""
        calls = [each for each in nodes if isinstance(each, ast.Call)]
        return calls, [(call, step) for call in calls for step in self._incremented(call)]

    def _incremented(self, call: ast.Call) -> Iterator[ast.expr]:
        """Yields the variable that a call increments, such as `step` in `step.assign_add(1)`."""
        meanings = self._names.resolve(call.func, self._scope)
        functions = [each.rpartition(".")[2] for each in meanings if is_tensorflow(each)]
        name = functions[0] if functions else last_name(call.func)
        if name not in ("assign", "assign_add"):
            return
        if functions:  # tf.assign(step, value)
            step, value = argument(call, 0, "ref"), argument(call, 1, "value")
        else:  # step.assign(value)
            step, value = getattr(call.func, "value", None), argument(call, 0, "value")
        if step is None:
            return
        always_adds = name == "assign_add"
        if always_adds or (value is not None and self._adds_to(step, value, visited=set())):
            yield step

    def _adds_to(self, step: ast.AST, value: ast.AST, visited: Set[ast.AST]) -> bool:
        """Returns whether a value is computed from `step + …` or `tf.add(step, …)`."""
        if value in visited:
            return False
        visited.add(value)
        for node in ast.walk(value):
            terms = []
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
                terms = [node.left, node.right]
            elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "add":
                terms = node.args
            if any(self.are_the_same(step, term) for term in terms):
                return True
            for each in self._scope.values(node):  # the expressions assigned to a name
                if self._adds_to(step, each.expression, visited):
                    return True
        return False

    def are_the_same(self, one: ast.AST, other: ast.AST) -> bool:
        """Returns whether two expressions may be the same variable."""
        identities = self._identities(one, self._scope, visited=set())
        return not identities.isdisjoint(self._identities(other, self._scope, visited=set()))

    def _identities(self, node: ast.AST, scope: Scope, visited: Set[ast.AST]) -> Set[Any]:
        """Returns a set of identifiers of the variables to which an expression may refer."""
        if node in visited:
            return set()
        visited.add(node)
        # A loop variable is not the same variable as the sequence, to which `Assigned` refers.
        assigned = [each for each in scope.values(node) if not each.is_element]
        inner = [(each.expression, each.scope) for each in assigned]
        inner += [(each, scope) for each in alternatives(node)]
        identities: Set[Any] = set()
        binding_scope, name = scope.key_of(node)
        if binding_scope is not None:
            identities.add((binding_scope, name))
        elif isinstance(node, (ast.Name, ast.Attribute)):  # for example model.global_step
            identities.add(ast.dump(node))
        elif isinstance(node, ast.Call):
            meanings = self._names.resolve(node.func, scope)
            if any(str(each).rpartition(".")[2] in _STEP_FUNCTIONS for each in meanings):
                identities.add("the graph's global step")
        for each, each_scope in inner:
            identities |= self._identities(each, each_scope, visited)
        return identities
