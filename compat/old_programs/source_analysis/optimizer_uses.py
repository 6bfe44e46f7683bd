"""Finds every use of an optimizer or of a removed name in Python files and notebooks.

The files are not run. `removed_names` finds the names that newer TensorFlows have removed.

A use is a place where code calls, subclasses, passes or imports an optimizer class, or a function
that takes or returns optimizers. A string that names an optimizer is a use, too. Calls of an
optimizer's methods, such as `minimize`, are not listed, except for `swapping_saver` and for
arguments that mean something else in the original optimizer.
"""

from __future__ import annotations

import ast
import contextlib
import re
from typing import Any, Dict, Iterable, List, NamedTuple, Optional, Sequence, Set, Tuple

from . import decay_var_lists, global_steps, name_verdicts, removed_names, scopes, sources
from .class_verdicts import Classes
from .name_verdicts import CHANGE, MANUAL, STAYS, Verdict
from .scopes import Definition, Meaning, Module, NameResolver, Text, last_name, text_of

_MODULES_OF_OPTIMIZERS = re.compile(
    r"(?:tf|tfa|keras)\.(?:train|contrib\.\w+|(?:keras\.)?optimizers(?:\.legacy)?)$"
)
_OPTIMIZER_PARAMETER = re.compile(r"(?:^|_)optimizer$")
_TENSORFLOW = re.compile(r"\btensorflow\b|\btf\b|\bkeras\b")
# {function: the position of the optimizer among its arguments}
_POSITIONS = {"compile": 0, "get_optimizer_instance": 0, "optimize_loss": 3}
_SEVERITY = (STAYS, CHANGE, MANUAL)
_TOO_DEEP = "it is nested too deeply."


class Use(NamedTuple):
    """One use of an optimizer or of a removed name."""

    path: str  # of the file; "x.ipynb[3]" for the third cell of a notebook
    line: int  # from 1
    column: int  # from 1
    # "constructor", "subclass", "class", "helper", "mention", "import", "string", "getattr", "star
    # import", "global step", "decay_var_list", "removed" or "unreadable".
    kind: str
    status: str  # see `Verdict`, also for the following fields
    name: Optional[str]
    instead: Optional[str]
    advice: str


def audit(paths: Iterable[str]) -> Tuple[List[Use], int]:
    """Returns the `Use` objects in files and folders, in this order, and the number of files.

    For the paths, and for the ValueError if there is none, see `sources.find`.
    """
    files = sources.find(paths)
    modules: List[Module] = []
    uses: List[Use] = []
    for path in files:
        try:
            source = sources.read(path)
            uses += map(_unreadable, source.unread)
            modules.append(Module(source, sources.module_names(path)))
        except sources.UnreadableError as error:
            uses.append(_unreadable(error))
        except RecursionError:
            uses.append(_unreadable(sources.UnreadableError(path, 1, 1, _TOO_DEEP)))
    names = NameResolver(modules)
    classes = Classes(names)
    for module in modules:
        try:
            uses += _OptimizerUses(module, names, classes).uses()
        except RecursionError:
            path = module.source.path
            uses.append(_unreadable(sources.UnreadableError(path, 1, 1, _TOO_DEEP)))
    order = {path: index for index, path in enumerate(files)}
    return sorted(uses, key=lambda use: _sort_key(use, order)), len(files)


def _unreadable(error: sources.UnreadableError) -> Use:
    place = (error.path, error.line, error.column)
    return Use(*place, "unreadable", MANUAL, "", None, error.why)


def _sort_key(use: Use, order: Dict[str, int]) -> Tuple[int, int, int, int]:
    path, _, cell = use.path.partition("[")  # "x.ipynb[3]"
    index = order.get(use.path, order.get(path, 0))
    cell = cell.rstrip("]")
    cell_number = int(cell) if cell.isdigit() else 0
    return index, cell_number, use.line, use.column


class _OptimizerUses(ast.NodeVisitor):
    """Finds the uses in a module."""

    def __init__(self, module: Module, names: NameResolver, classes: Classes) -> None:
        self._module, self._names, self._classes = module, names, classes
        self._scope = module.scope
        self._found: Dict[Any, Use] = {}
        self._mentions_tensorflow = any(map(_TENSORFLOW.search, module.source.lines))

    def uses(self) -> List[Use]:
        module, names = self._module, self._names
        for star, statement in module.star_imports:
            self._report_star_import(star, statement)
        self.visit(module.source.tree)
        self._report_all("global step", global_steps.verdicts(module, names, self._classes))
        self._report_all("removed", removed_names.verdicts(module, names))
        return list(self._found.values())

    def _report(self, node: Any, kind: str, verdict: Optional[Verdict]) -> None:
        """Adds a `Use`, unless the verdict is None, or the place has one already."""
        if verdict is None:
            return
        path, line = self._module.source.place(node.lineno)
        place = (path, line, node.col_offset + 1)
        status, name, instead, advice, _ = verdict
        self._found.setdefault(place, Use(*place, kind, status, name, instead, advice))

    def _report_all(self, kind: str, nodes_and_verdicts: Iterable[Tuple[ast.AST, Verdict]]) -> None:
        with contextlib.suppress(RecursionError):  # the search for a name may be too deep
            for node, verdict in nodes_and_verdicts:
                self._report(node, kind, verdict)

    # Statements and expressions.

    def _enter(self, node: ast.AST) -> None:
        outer, self._scope = self._scope, self._module.scopes[node]
        self.generic_visit(node)
        self._scope = outer

    visit_Lambda = _enter

    def visit_FunctionDef(self, node: scopes.Function) -> None:
        # Decorators, defaults and annotations belong to the enclosing scope. Visiting them in the
        # function's scope works, too: names that it lacks are looked up in the enclosing scope.
        self._enter(node)
        for argument, default in scopes.with_defaults(node.args):
            if _OPTIMIZER_PARAMETER.search(argument.arg):
                self._report_key(default, node.name)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        scope = self._module.scopes[node]
        definition = Definition(scope.name, node, scope, self._module)
        verdict = self._classes.verdict(definition)
        if verdict is None:
            verdict = self._verdict([definition])
            if verdict is not None:
                verdict = verdict._replace(name=f"class {node.name}")
                name_node = self._module.source.name_after(node, "class", node.name)
                self._report(name_node, "class", verdict)
        elif self._may_concern_optimizer(verdict):
            self._report(self._classes.optimizer_base(definition), "subclass", verdict)
        self._enter(node)

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self._report_import(node, alias.name, [alias.name])

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = self._module.imported(node)
        for alias in node.names:
            if alias.name != "*":
                names = self._names.follow(f"{module}.{alias.name}", self._module)
                self._report_import(node, alias.name, names)

    def _report_import(self, node: ast.stmt, name: str, meanings: Sequence[Meaning]) -> None:
        name_node = self._module.source.name_after(node, "import", name)
        self._report(name_node, "import", self._verdict(meanings))

    def visit_Attribute(self, node: ast.Attribute) -> None:
        is_read = isinstance(node.ctx, ast.Load)
        verdict = self._verdict(self._resolve(node)) if is_read else None
        if verdict is None:
            self.generic_visit(node)
        else:
            self._report(node, "mention", verdict)

    def visit_Name(self, node: ast.Name) -> None:
        # If this file assigns an expression to the name, the expression is reported instead.
        bound = self._scope.find(node.id) or ()
        is_imported = all(isinstance(each, str) for each in bound)
        if isinstance(node.ctx, ast.Load) and is_imported:
            self._report(node, "mention", self._verdict(self._resolve(node)))

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if _OPTIMIZER_PARAMETER.search(last_name(target)):
                self._report_key(node.value, callee=None)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        decays = decay_var_lists.verdicts(node, self._scope, self._names, self._classes)
        self._report_all("decay_var_list", decays)
        callees = self._resolve(node.func)
        verdict = self._verdict_on_call(node, callees)
        if verdict is not None:
            is_helper = not verdict.name.rpartition(".")[2][:1].isupper()
            self._report(node, "helper" if is_helper else "constructor", verdict)
        if verdict is None or not isinstance(node.func, (ast.Name, ast.Attribute)):
            self.visit(node.func)  # for example {"adam": Adam, "ftrl": Ftrl}[name]
        self._report_strings(node, callees)
        name = getattr(node.func, "id", "")
        if name == "getattr" and len(node.args) > 1:
            self._report_getattr(node)
            return
        if name == "type" and len(node.args) == 3:
            self._report_type_call(*node.args[:2])
        for argument in node.args + [keyword.value for keyword in node.keywords]:
            self.visit(argument)

    def _report_type_call(self, name: ast.AST, bases: ast.AST) -> None:
        """Reports `type(name, bases, …)` if a base class is known only at run time."""
        for base in getattr(bases, "elts", ()):
            verdict = self._classes.guess(base, self._scope)
            if verdict is not None and self._may_concern_optimizer(verdict):
                shown = f"class {text_of(name) or '…'}({verdict.name})"
                self._report(base, "subclass", verdict._replace(name=shown))

    def _verdict_on_call(self, node: ast.Call, callees: List[Meaning]) -> Optional[Verdict]:
        if getattr(node.func, "attr", "") == "swapping_saver":
            advice = "A method of MovingAverageOptimizer, also in legacy_opt."
            return Verdict(STAYS, "swapping_saver", None, advice)
        definitions = [each for each in callees if isinstance(each, Definition)]
        for each in definitions:
            if isinstance(each.node, ast.ClassDef) and self._classes.verdict(each) is not None:
                path, line = each.module.source.place(each.node.lineno)
                return Verdict(STAYS, each.name, None, f"The class is defined in {path}:{line}.")
        functions = [each for each in definitions if not isinstance(each.node, ast.ClassDef)]
        # An audited function may be a known helper: tf_slim, if audited, defines optimize_loss.
        verdicts = [name_verdicts.verdict(each.full_name) for each in functions]
        helpers = (each for each in verdicts if each is not None and not each.is_guess)
        verdict = next(helpers, None) or self._verdict(callees)
        if verdict is not None and verdict.name.startswith("tf.keras."):
            verdict = _with_advice_on_keywords(verdict, {keyword.arg for keyword in node.keywords})
        return verdict

    # Strings.

    def _report_strings(self, node: ast.Call, callees: List[Meaning]) -> None:
        names = (getattr(each, "full_name", each) for each in callees)
        callee = next((each for each in names if isinstance(each, str)), None)
        last = last_name(node.func)
        if callee == "re.compile":
            return
        position = _POSITIONS.get(last)
        if last == "get" and callee and callee.endswith(".optimizers.get"):
            position = 0
        if position is not None and position < len(node.args):
            self._report_key(node.args[position], callee or last)
        # The position of the argument `optimizer` differs between the Estimators.
        if callee and name_verdicts.CANNED_ESTIMATOR.match(callee):
            for argument in node.args:
                self._report_key(argument, callee)
        for keyword in node.keywords:
            if keyword.arg and _OPTIMIZER_PARAMETER.search(keyword.arg):
                self._report_key(keyword.value, callee or last)

    def _report_key(self, node: ast.AST, callee: Optional[str]) -> None:
        for each in self._resolve(node):
            if isinstance(each, Text) and each.module is self._module:
                self._report(each.node, "string", name_verdicts.verdict_on_key(each.text, callee))

    def _report_getattr(self, node: ast.Call) -> None:
        owners = [each for each in self._resolve(node.args[0]) if isinstance(each, str)]
        public = [name_verdicts.old_names.public_name(each) for each in owners]
        modules = [each for each in public if _MODULES_OF_OPTIMIZERS.match(each)]
        name = text_of(node.args[1])
        if name is not None:
            self._report(node, "getattr", self._verdict(self._resolve(node)))
        elif modules and not _names_something_else(node.args[1]):
            shown = f"getattr({modules[0]}, …)"
            verdict = Verdict(MANUAL, shown, None, "The optimizer is known only at run time.")
            self._report(node, "getattr", verdict)

    def _report_star_import(self, module: str, statement: ast.AST) -> None:
        public = name_verdicts.old_names.public_name(module)
        if _MODULES_OF_OPTIMIZERS.match(public) or public in ("tf.contrib", "tfa.optimizers"):
            advice = "It hides which optimizers are imported: import them by name. "
            advice += name_verdicts.old_names.advice(module)
            verdict = Verdict(MANUAL, public, None, advice.rstrip())
            self._report(statement, "star import", verdict)

    # Meanings of names.

    def _may_concern_optimizer(self, verdict: Verdict) -> bool:
        """Returns whether a verdict may concern an optimizer of TensorFlow or Keras.

        False for a guess in a file that mentions neither TensorFlow nor Keras, unless the name is
        one of TensorFlow's: it may be a class "…Optimizer" of an unrelated package.
        """
        is_known = verdict.name.startswith(("tf.", "tfa.")) or not verdict.is_guess
        return self._mentions_tensorflow or is_known

    def _resolve(self, node: ast.AST) -> List[Meaning]:
        try:
            return self._names.resolve(node, self._scope)
        except RecursionError:  # the search for a name is too deep
            return []

    def _verdict(self, names: Sequence[Meaning]) -> Optional[Verdict]:
        """Returns one `Verdict` on all meanings of an expression, or None."""
        judged = [name_verdicts.verdict(name) for name in names if isinstance(name, str)]
        definitions = [each for each in names if isinstance(each, Definition)]
        judged += map(self._classes.verdict_on_unrelated_class, definitions)
        known = [each for each in judged if each is not None]
        verdicts = [each for each in known if self._may_concern_optimizer(each)]
        if not verdicts:
            return None
        words = {each.name.rpartition(".")[2] for each in verdicts}
        if len(words) == 1:  # one optimizer in several modules: report the least severe verdict
            return min(verdicts, key=lambda each: _SEVERITY.index(each.status))
        more = ", …" if len(words) > 4 else ""
        shown = ", ".join(sorted(words)[:4]) + more
        advice = "The code uses one of these classes; other lines of the report judge each class."
        return Verdict(STAYS, shown, None, advice)


def _names_something_else(node: ast.AST) -> bool:
    """Returns whether an expression ends with a string without "Optimizer", as in name + "Hook"."""
    end = text_of(node.right) if isinstance(node, ast.BinOp) else None
    return end is not None and "Optimizer" not in end and not end.startswith("%")


def _with_advice_on_keywords(verdict: Verdict, keywords: Set[Optional[str]]) -> Verdict:
    """Adds advice on the arguments to the verdict on a Keras optimizer."""
    advice = []
    if "lr" in keywords:
        advice.append("Write learning_rate instead of lr.")
    if "decay" in keywords and ".legacy." not in verdict.name:
        advice.append(
            "TensorFlow 2.11 removed the argument decay: use a schedule, or …optimizers.legacy."
        )
    if not advice:
        return verdict
    return verdict._replace(status=CHANGE, advice=" ".join(advice))
