"""Resolves names (imports, aliases, variables) in one or several Python files without running them.

A meaning of a name is a class or function of the audited code, a string literal, or the full dotted
name of an imported object. Control flow is ignored: a name has all meanings that its module, class
or function assigns to it anywhere, as if all branches of a `try` or an `if` were taken.
"""

from __future__ import annotations

import ast
import os
from typing import Any, Callable, Dict, Iterable, List, NamedTuple, Optional, Tuple, Union

from .sources import Source


class Definition(NamedTuple):
    """A class or function that the audited code defines."""

    name: str  # qualified, such as `Outer.method`
    node: ast.AST
    scope: Scope  # of the body
    module: Module

    @property
    def full_name(self) -> str:
        """The name that other files import: the qualified name with its module in front."""
        return f"{self.module.name}.{self.name}"


class Text(NamedTuple):
    """A string literal."""

    text: str
    node: ast.AST
    module: Module


class Assigned(NamedTuple):
    """An expression that is assigned to a name."""

    expression: ast.AST
    scope: Scope
    is_element: bool  # whether the name refers to an element of the value, as in a `for` loop


Meaning = Union[str, Definition, Text]  # a string is the full name of an imported object
Bound = Union[str, Definition, Assigned]  # what a statement binds to a name
Function = Union[ast.FunctionDef, ast.AsyncFunctionDef]
_MOST_VALUES = 200  # of a name: each use of a name costs as much time as it has values
_Unknown = ast.Pass  # the expression of a value that is known only at run time


class Scope:
    """The names of a module, a class or a function.

    Attributes of `self` are names in the scope of the class, with "self." in front.
    """

    def __init__(
        self, module: Module, parent: Optional[Scope] = None, name: str = "", is_class: bool = False
    ) -> None:
        self.module, self.parent = module, parent
        self.name, self.is_class = name, is_class
        self.names: Dict[str, List[Bound]] = {}

    def bind(self, name: str, value: Bound) -> None:
        """Adds a value to a name, if it has fewer than `_MOST_VALUES`."""
        values = self.names.setdefault(name, [])
        if len(values) < _MOST_VALUES and value not in values:
            values.append(value)

    def find(self, name: str) -> Optional[List[Bound]]:
        """Returns the values of a name in this scope or an enclosing scope, or None."""
        home = self._home(name)
        return None if home is None else home.names[name]

    def _home(self, name: str) -> Optional[Scope]:
        """Returns the scope that binds a name (this scope or an enclosing scope), or None."""
        scope = self
        while scope is not None:
            is_visible = scope is self or not scope.is_class  # a method does not see class names
            if is_visible and name in scope.names:
                return scope
            scope = scope.parent
        return None

    def enclosing_class(self) -> Optional[Scope]:
        """Returns the scope of the class that this scope belongs to, or None."""
        scope = self
        while scope is not None and not scope.is_class:
            scope = scope.parent
        return scope

    def key_of(self, node: ast.AST) -> Tuple[Optional[Scope], str]:
        """Returns the scope that binds a name or an attribute of `self`, and the name in it.

        Returns (None, "") for other expressions, and for names that this file does not bind.
        """
        home, name = None, ""
        if isinstance(node, ast.Name):
            name = node.id
            home = self._home(name)
        elif _is_of_self(node):
            name = "self." + node.attr
            home = self.enclosing_class()
        return (None, "") if home is None else (home, name)

    def values(self, node: ast.AST) -> List[Assigned]:
        """Returns the `Assigned` objects of a name or of an attribute of `self`."""
        home, name = self.key_of(node)
        bound = [] if home is None else home.names.get(name, [])
        return [each for each in bound if isinstance(each, Assigned)]


class Module:
    """The scopes and the star imports of a file."""

    def __init__(self, source: Source, names: List[str]) -> None:
        self.source = source
        self.names = names  # under which other files may import the file, likeliest first
        self.is_package = source.path.endswith("__init__.py")
        self.star_imports: List[Tuple[str, ast.ImportFrom]] = []  # (module, statement)
        self.scope = Scope(self)
        self.scopes: Dict[ast.AST, Scope] = {}
        _Binder(self).visit(source.tree)

    @property
    def name(self) -> str:
        """The likeliest full name of the module."""
        return self.names[0] if self.names else ""

    def imported(self, statement: ast.ImportFrom) -> str:
        """Returns the full name of the module of a `from … import …`."""
        if not statement.level:
            return statement.module or ""
        parts = self.name.split(".")
        if self.is_package:
            parts.append("__init__")  # one dot means the package itself
        parts = parts[: len(parts) - statement.level]
        if statement.module:
            parts.append(statement.module)
        return ".".join(parts)


class _Binder(ast.NodeVisitor):
    """Fills the scopes of a module."""

    def __init__(self, module: Module) -> None:
        self.module, self.scope = module, module.scope

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            # `import a.b` binds `a`, but `import a.b as c` binds `c` to the module `a.b`.
            name = alias.name if alias.asname else alias.name.partition(".")[0]
            self.scope.bind(alias.asname or name, name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = self.module.imported(node)
        for alias in node.names:
            if alias.name == "*":
                self.module.star_imports.append((module, node))
            else:
                full = f"{module}.{alias.name}" if module else alias.name
                self.scope.bind(alias.asname or alias.name, full)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._define(node, is_class=True)

    def visit_FunctionDef(self, node: Function) -> None:
        scope = self._define(node, is_class=False)
        _bind_arguments(node.args, scope, self.scope)

    visit_AsyncFunctionDef = visit_FunctionDef

    def visit_ExceptHandler(self, node: ast.ExceptHandler) -> None:
        if node.name:
            self.scope.bind(node.name, Assigned(_Unknown(), self.scope, is_element=False))
        self.generic_visit(node)

    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._assign(node.optional_vars, _Unknown())
        self.generic_visit(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        scope = self._enter(node, Scope(self.module, self.scope, self.scope.name))
        _bind_arguments(node.args, scope, self.scope)

    def _define(self, node: Union[Function, ast.ClassDef], is_class: bool) -> Scope:
        name = self.scope.name + "." + node.name if self.scope.name else node.name
        scope = Scope(self.module, self.scope, name, is_class)
        self.scope.bind(node.name, Definition(name, node, scope, self.module))
        return self._enter(node, scope)

    def _enter(self, node: ast.AST, scope: Scope) -> Scope:
        outer, self.scope = self.scope, scope
        self.module.scopes[node] = scope
        self.generic_visit(node)
        self.scope = outer
        return scope

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self._assign(target, node.value)
        self.generic_visit(node)

    def visit_AnnAssign(self, node: Any) -> None:
        if node.value is not None:
            self._assign(node.target, node.value)
        self.generic_visit(node)

    visit_NamedExpr = visit_AnnAssign

    def visit_For(self, node: Any) -> None:
        self._assign(node.target, node.iter, is_element=True)
        self.generic_visit(node)

    visit_comprehension = visit_AsyncFor = visit_For

    def _assign(self, target: ast.AST, value: ast.AST, is_element: bool = False) -> None:
        assigned = Assigned(value, self.scope, is_element)
        if isinstance(target, ast.Name):
            self.scope.bind(target.id, assigned)
            if self.scope.is_class:
                self.scope.bind("self." + target.id, assigned)
        elif isinstance(target, (ast.Tuple, ast.List)):
            values = getattr(value, "elts", ())
            if is_element or len(values) != len(target.elts):
                values = [_Unknown() for _ in target.elts]
            for each, value_of_each in zip(target.elts, values):
                self._assign(each, value_of_each)
        elif _is_of_self(target) and self.scope.enclosing_class() is not None:
            self.scope.enclosing_class().bind("self." + target.attr, assigned)


def _bind_arguments(arguments: ast.arguments, scope: Scope, outer: Scope) -> None:
    """Binds parameters to their defaults; a parameter without a default gets no meaning."""
    positional = getattr(arguments, "posonlyargs", []) + arguments.args
    for argument, default in with_defaults(arguments):
        scope.bind(argument.arg, Assigned(default, outer, is_element=False))
    for argument in positional + arguments.kwonlyargs + [arguments.vararg, arguments.kwarg]:
        if argument is not None:
            scope.names.setdefault(argument.arg, [])


def with_defaults(arguments: ast.arguments) -> List[Tuple[ast.arg, ast.expr]]:
    """Returns a list of (parameter, default) for the parameters that have a default."""
    positional = getattr(arguments, "posonlyargs", []) + arguments.args
    first_default = len(positional) - len(arguments.defaults)
    pairs = list(zip(positional[first_default:], arguments.defaults))
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults)
    return [(argument, default) for argument, default in pairs if default is not None]


def _is_of_self(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def text_of(node: Any) -> Optional[str]:
    """Returns the text of a string literal, or None for other nodes."""
    value = getattr(node, "value", None) if isinstance(node, ast.Constant) else None
    if type(node).__name__ == "Str":  # in Python 3.7
        value = node.s
    return value if isinstance(value, str) else None


def last_name(node: Any) -> str:
    """Returns the last part of a dotted name; "" for other expressions."""
    return getattr(node, "attr", getattr(node, "id", ""))


def alternatives(node: ast.AST) -> List[ast.expr]:
    """Returns [a, b] for `a if x else b` and for `a or b`; [] for other nodes."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    return node.values if isinstance(node, ast.BoolOp) else []


class NameResolver:
    """Resolves names over several modules."""

    def __init__(self, modules: Iterable[Module]) -> None:
        self._modules: Dict[str, List[Module]] = {}
        self._answers: Dict[Tuple[Any, ...], List[Meaning]] = {}
        self._returns: Dict[ast.AST, List[ast.expr]] = {}  # see `returned`
        for module in modules:
            for name in module.names:
                self._modules.setdefault(name, []).append(module)

    def resolve(self, node: Optional[ast.AST], scope: Scope) -> List[Meaning]:
        """Returns the possible meanings of an expression in a scope, without repetitions."""
        return self._cached(("resolve", node, scope), self._resolve, node, scope)

    def _cached(
        self, key: Tuple[Any, ...], function: Callable[..., Iterable[Meaning]], *arguments: Any
    ) -> List[Meaning]:
        """Returns a cached result; an empty list if the query depends on its own result."""
        if key not in self._answers:
            self._answers[key] = []  # for the same query within this one
            self._answers[key] = _unique(function(*arguments))
        return self._answers[key]

    def _resolve(self, node: Any, scope: Scope) -> List[Meaning]:
        kind = type(node).__name__
        if kind == "Name":
            return self._resolve_name(node.id, scope)
        if kind == "Attribute":
            if _is_of_self(node) and scope.enclosing_class() is not None:
                return self._meanings(scope.values(node), scope.module)
            return self._resolve_attribute(node.value, node.attr, scope)
        if kind in ("IfExp", "BoolOp"):
            return self._resolve_all(alternatives(node), scope)
        if kind == "Subscript":
            key = getattr(node.slice, "value", node.slice)  # up to Python 3.8, an ast.Index
            return self.contents(node.value, scope, text_of(node.slice) or text_of(key))
        text = text_of(node)
        if text is not None:
            return [Text(text, node, scope.module)]
        return self._resolve_call(node, scope) if kind == "Call" else []

    def _resolve_call(self, node: ast.Call, scope: Scope) -> List[Meaning]:
        """Returns the meanings of a call's result.

        Only calls of a few known functions, and of functions in the audited code, have meanings.
        """
        function = node.func
        first = node.args[0] if node.args else None
        name = last_name(function)
        text = text_of(node.args[1]) if len(node.args) > 1 else None
        if name == "getattr" and text:
            return self._resolve_attribute(first, text, scope)
        module = text_of(first)
        if name == "import_module" and module:
            return [module]
        if name == "partial" and first is not None:
            return self.resolve(first, scope)
        if name == "with_metaclass":  # a function of the packages six and future
            return self._resolve_all(node.args[1:], scope)
        if name == "get" and isinstance(function, ast.Attribute):
            return self.contents(function.value, scope, text_of(first))
        callees = self.resolve(function, scope)
        if name == "extend_with_decoupled_weight_decay":
            return callees
        definitions = [each for each in callees if isinstance(each, Definition)]
        return _unique(
            meaning
            for each in definitions
            for meaning in self._resolve_all(self.returned(each), each.scope)
        )

    def returned(self, definition: Definition) -> List[ast.expr]:
        """Returns the expressions that a function returns; an empty list for a class."""
        if isinstance(definition.node, ast.ClassDef):
            return []
        if definition.node not in self._returns:
            returns = [each for each in ast.walk(definition.node) if isinstance(each, ast.Return)]
            self._returns[definition.node] = [each.value for each in returns if each.value]
        return self._returns[definition.node]

    def contents(self, node: ast.AST, scope: Scope, key: Optional[str] = None) -> List[Meaning]:
        """Returns the meanings of the elements of a dict, list or tuple.

        If a dict has the string `key`, only the value of this key counts.
        """
        return self._cached(("in", node, scope, key), self._contents, node, scope, key)

    def _contents(self, node: Any, scope: Scope, key: Optional[str]) -> List[Meaning]:
        kind = type(node).__name__
        if kind == "Dict":
            pairs = zip(node.keys, node.values)
            values = [value for key_node, value in pairs if text_of(key_node) == key]
            has_key = key and values
            return self._resolve_all(values if has_key else node.values, scope)
        if kind in ("List", "Tuple", "Set"):
            return self._resolve_all(node.elts, scope)
        if kind == "Call" and isinstance(node.func, ast.Attribute) and node.func.attr == "values":
            return self.contents(node.func.value, scope)  # some_dict.values()
        meanings = []
        for value in scope.values(node):
            meanings += self.contents(value.expression, value.scope, key)
        return meanings

    def _resolve_all(self, nodes: Iterable[ast.AST], scope: Scope) -> List[Meaning]:
        return _unique(each for node in nodes for each in self.resolve(node, scope))

    def _resolve_name(self, name: str, scope: Scope) -> List[Meaning]:
        bound = scope.find(name)
        if bound is not None:
            return self._meanings(bound, scope.module)
        starred_names = (f"{star}.{name}" for star, _ in scope.module.star_imports)
        return _unique(each for full in starred_names for each in self.follow(full, scope.module))

    def _meanings(self, values: Iterable[Bound], module: Module) -> List[Meaning]:
        result = []
        for value in values:
            if isinstance(value, Assigned):
                meanings_of = self.contents if value.is_element else self.resolve
                result += meanings_of(value.expression, value.scope)
            elif isinstance(value, Definition):
                result.append(value)
            else:
                result += self.follow(value, module)
        return result

    def _resolve_attribute(self, node: Optional[ast.AST], name: str, scope: Scope) -> List[Meaning]:
        owners = [each for each in self.resolve(node, scope) if isinstance(each, str)]
        names = (f"{owner}.{name}" for owner in owners)
        return _unique(each for full in names for each in self.follow(full, scope.module))

    def follow(self, name: str, module: Module) -> List[Meaning]:
        """Returns the possible meanings of a full name that `module` uses, without repetitions.

        If no audited module defines or imports the name, the name itself is one of its meanings.
        """
        owner, _, last = name.rpartition(".")
        home = self._module(owner, module)
        if home is None:
            return [name]
        return self._cached(("follow", name, home), self._meanings_in, name, last, home)

    def _meanings_in(self, name: str, last: str, home: Module) -> List[Meaning]:
        bound = home.scope.names.get(last)
        if bound is not None:
            return self._meanings(bound, home)
        starred_names = (f"{star}.{last}" for star, _ in home.star_imports)
        meanings = [each for full in starred_names for each in self.follow(full, home)]
        if name in self._modules:
            return [name]
        definitions: List[Meaning] = [each for each in meanings if isinstance(each, Definition)]
        if definitions:
            return definitions
        # The last meaning is the name itself, which `home` does not define (see `is_undefined`).
        return [*filter(self._is_outside, meanings), name]

    def is_undefined(self, meaning: Meaning) -> bool:
        """Returns whether a meaning is a name in an audited module that does not define it."""
        is_name = isinstance(meaning, str) and meaning not in self._modules
        return is_name and meaning.rpartition(".")[0] in self._modules

    def _is_outside(self, meaning: Meaning) -> bool:
        return isinstance(meaning, str) and meaning.rpartition(".")[0] not in self._modules

    def _module(self, name: str, user: Module) -> Optional[Module]:
        """Returns the module with this name, except `user`, whose path is most like its own."""
        candidates = [each for each in self._modules.get(name, ()) if each is not user]
        user_path = user.source.path

        def common_length(module: Module) -> int:
            return len(os.path.commonprefix([module.source.path, user_path]))

        return max(candidates, key=common_length) if candidates else None


def _unique(values: Iterable[Meaning]) -> List[Meaning]:
    return list(dict.fromkeys(values))
