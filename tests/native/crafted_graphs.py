"""Runs the operations of the operations library on inputs that no optimizer creates.

python -m tests.native.crafted_graphs daily 100   # prints the outcomes; 100 of the cases are drawn
python -m tests.native.crafted_graphs full 1000   # each fault with each kind of variables

A test starts this program as a child process, because a wrong library may crash or hang.
"""

import itertools
import json
import sys

import numpy as np
import tensorflow as tf

from legacy_opt import versions
from legacy_opt.native.runtime import compiled_kernels, tensorflow_operations
from legacy_opt.programs.program import (
    ADD,
    ASSIGN,
    ELEMENT,
    FADE,
    GRADIENT,
    MATRIX_COLUMN,
    MATRIX_ROW,
    ROW,
    SCALAR,
    VALUE,
    Input,
)
from legacy_opt.programs.trace import Results, trace

v1 = tf.compat.v1
START = np.arange(1, 7, dtype=np.float32).reshape(3, 2)
GRADIENT_VALUE = np.array([[1, 0], [2, -1], [0, 3]], np.float32)
ERRORS = (tf.errors.OpError, TypeError, ValueError)


class Value:
    """A variable with its initial value; the same object twice is the same variable."""

    def __init__(self, array, initialized=True):
        self.array, self.initialized = np.array(array), initialized


class Table(Value):
    """Stands for the handle of a hash table."""


class Handles(Value):
    """Stands for a tensor of handles of variables."""

    def __init__(self, *values):
        super().__init__(START)
        self.values = values


def _kernel(slots, rule, scalars=()):
    inputs = [Input(GRADIENT, ELEMENT, "float32"), Input(VALUE, ELEMENT, "float32"), *scalars]
    slots = [Input(name, level, dtype, True) for name, level, dtype in slots]
    program = trace(
        inputs + slots, [None, None], lambda tensors: rule(*map(tensors.get, inputs + slots))
    )
    return compiled_kernels.compiled(program, slots)


def _of_matrix(grad, value, row, column):
    new = row + tf.reduce_sum(grad, -1), column + tf.reduce_sum(grad, -2)
    step = tf.expand_dims(new[0], -1) + tf.expand_dims(new[1], -2)
    return Results(step, {"row": (ASSIGN, new[0], None), "column": (ASSIGN, new[1], None)})


KERNELS = {
    "dense": lambda: _kernel(
        [("sum", ELEMENT, "float32"), ("steps", SCALAR, "int64")],
        lambda grad, value, rate, total, steps: Results(
            rate * grad,
            {"sum": (ASSIGN, total + grad, None), "steps": (ADD, tf.ones_like(steps), None)},
        ),
        [Input("rate", SCALAR, "float32")],
    ),
    "norm": lambda: _kernel([], lambda grad, value: Results(tf.reduce_sum(grad * grad), {})),
    "rows": lambda: _kernel(
        [("count", ROW, "int64")],
        lambda grad, value, count: Results(grad, {"count": (ADD, tf.ones_like(count), None)}),
    ),
    "fading": lambda: _kernel(
        [("sum", ELEMENT, "float32")],
        lambda grad, value, total: Results(
            grad, {"sum": (FADE, total * 0.5 + grad, tf.constant(0.5))}
        ),
    ),
    "matrix": lambda: _kernel(
        [("row", MATRIX_ROW, "float32"), ("column", MATRIX_COLUMN, "float32")], _of_matrix
    ),
}
SLOTS = {
    "dense": [np.ones_like(START), np.int64(0)],
    "norm": [],
    "rows": [np.array([5, 6, 7])],
    "fading": [np.ones_like(START)],
    "matrix": [np.ones(3, np.float32), np.ones(2, np.float32)],
}


def case(operation, kernel, **changes):
    """Returns valid arguments of an operation, with changes."""
    slots = [Value(each) for each in SLOTS[kernel]]
    given = {
        "operation": operation,
        "kernel": kernel,
        "variables": [Value(START), *slots],
        "scalars": [np.float32(2.0)] if kernel == "dense" else [],
        "gradients": [GRADIENT_VALUE],
        "use_locking": False,
    }
    if operation == "rows":
        given.update(ids=np.array([2, 0, 2]), all_rows=kernel == "dense")
    return dict(given, **changes)


def base_cases():
    """Returns {name: valid arguments}."""
    return {
        "dense": case("whole", "dense"),
        "norm": case("whole", "norm"),
        "matrix": case("whole", "matrix"),
        "all rows": case("rows", "dense"),
        "some rows": case("rows", "rows"),
        "fading": case("rows", "fading"),
    }


def _with(given, name, position, value):
    items = list(given[name])
    items[position] = value
    return dict(given, **{name: items})


def _without_slot(given):
    return dict(given, variables=given["variables"][:-1])


def _variable(position, change):
    """Returns a fault: the variable at a position gets the value `change(old value)`."""

    def fault(given):
        old = given["variables"][position].array
        return _with(given, "variables", position, Value(change(old)))

    return fault


# {name: a function that makes arguments invalid, or returns None if they stay valid}
FAULTS = {
    "a string as variable": _variable(0, lambda old: np.full(old.shape, b"a long text" * 9)),
    "a string as slot": _variable(-1, lambda old: np.full(old.shape, b"a long text" * 9)),
    "int32 as variable": _variable(0, lambda old: np.ones_like(old, np.int32)),
    "bool as slot": _variable(-1, lambda old: np.ones(old.shape, bool)),
    "an empty slot": _variable(-1, lambda old: np.zeros([0, *old.shape[1:]], old.dtype)),
    "a variable without axes": _variable(0, lambda old: np.float32(1)),
    "a variable without rows": _variable(0, lambda old: np.atleast_1d(old)[:0]),
    "a variable with more axes": _variable(0, lambda old: old[np.newaxis]),
    "no slot": _without_slot,
    "a slot too many": lambda given: dict(
        given, variables=[*given["variables"], Value(np.ones_like(START))]
    ),
    "an uninitialized variable": lambda given: _with(
        given, "variables", 0, Value(START, initialized=False)
    ),
    "an uninitialized slot": lambda given: _with(
        given, "variables", -1, Value(given["variables"][-1].array, initialized=False)
    ),
    "a variable as its own slot": lambda given: (
        _with(given, "variables", 1, given["variables"][0]) if given["variables"][1:] else None
    ),
    "a variable twice": lambda given: (
        None
        if given["operation"] == "rows"
        else dict(given, variables=given["variables"] * 2, gradients=given["gradients"] * 2)
    ),
    "a scalar too many": lambda given: dict(given, scalars=[*given["scalars"], np.float32(1)]),
    "a scalar in float64": lambda given: dict(given, scalars=[np.float64(1)]),
    "a string as scalar": lambda given: dict(given, scalars=[b"text"]),
    "a scalar of two numbers": lambda given: dict(given, scalars=[np.ones(2, np.float32)]),
    "no number as scalar": lambda given: dict(given, scalars=[np.ones(0, np.float32)]),
    "a gradient too many": lambda given: (
        None if given["operation"] == "rows" else dict(given, gradients=given["gradients"] * 2)
    ),
    "a gradient of another shape": lambda given: _with(
        given, "gradients", 0, GRADIENT_VALUE[:, :1]
    ),
    "a transposed gradient": lambda given: _with(given, "gradients", 0, GRADIENT_VALUE.T),
    "a gradient without axes": lambda given: _with(given, "gradients", 0, np.float32(1)),
    "a gradient in float64": lambda given: _with(
        given, "gradients", 0, GRADIENT_VALUE.astype(np.float64)
    ),
    "ids without axes": lambda given: _of_ids(given, np.array(1)),
    "ids with two axes": lambda given: _of_ids(given, np.array([[2, 0, 2]])),
    "too few ids": lambda given: _of_ids(given, np.array([2, 0])),
    "too large an id": lambda given: _of_ids(given, np.array([2, 3, 2])),
    "a negative id": lambda given: _of_ids(given, np.array([2, -1, 2])),
    "an enormous id": lambda given: _of_ids(given, np.array([2, 2**62, 2])),
    "sums of all elements": lambda given: _of_kernel(given, "norm", "rows"),
    "matrices by rows": lambda given: _of_kernel(given, "matrix", "rows"),
    "a kernel for rows": lambda given: _of_kernel(given, "rows", "whole"),
    "all rows of a kernel for rows": lambda given: _of_kernel(given, "rows", "rows", all_rows=True),
    "all rows of a fading kernel": lambda given: _of_kernel(given, "fading", "rows", all_rows=True),
    "matrices of vectors": lambda given: (
        None
        if given["kernel"] != "matrix"
        else dict(
            given,
            variables=[Value(START[0]), *given["variables"][1:]],
            gradients=[GRADIENT_VALUE[0]],
        )
    ),
    "another process's kernel": lambda given: dict(given, kernel="0" * 32),
}
# Faults of resource variables only.
HANDLES = {
    "the handle of a table": lambda given: _with(given, "variables", -1, Table(START)),
    "two handles in one": lambda given: _with(
        given, "variables", 0, Handles(given["variables"][0], Value(START))
    ),
    "no handle": lambda given: _with(given, "variables", 0, Handles()),
}


def _of_ids(given, ids):
    return dict(given, ids=ids) if given["operation"] == "rows" else None


def _of_kernel(given, kernel, operation, **changes):
    if given["operation"] != operation:
        return None
    return case(operation, kernel, **changes)


class Run:
    """Runs an operation in a new graph.

    Args:
      given: the arguments, see `case`.
      kind: "resource", "ref", or "named" for resource variables that are found by name.
    """

    def __init__(self, given, kind):
        self._given, self._kind = given, kind
        self._made = []  # pairs of a Value and its variable
        self._tables = []

    def outcome(self):
        """Returns (error message or None, values before, values after)."""
        with tf.Graph().as_default(), v1.Session() as session:
            try:
                operation = self._operation()
            except ERRORS as error:  # TensorFlow itself refuses the graph
                return str(error), [], []
            ready = [variable for value, variable in self._made if value.initialized]
            session.run([each.initializer for each in ready])
            session.run(self._tables)
            before, message = session.run(ready), None
            try:
                session.run(operation, options=v1.RunOptions(timeout_in_ms=20000))
            except ERRORS as error:
                message = f"{type(error).__name__}: {_essence(error)}"
            return message, before, session.run(ready)

    def _input(self, value):
        if isinstance(value, Table):
            name = f"table{len(self._tables)}"
            table = tf.raw_ops.HashTableV2(
                key_dtype=tf.int64, value_dtype=tf.int64, shared_name=name
            )
            self._tables.append(table.op)
            return name if self._kind == "named" else table
        if isinstance(value, Handles):
            if not value.values:
                return tf.reshape(self._input(Value(START)), [1])[:0]
            return tf.stack([self._input(each) for each in value.values])
        known = [variable for each, variable in self._made if each is value]
        variable = known[0] if known else self._variable(value)
        if self._kind == "named":
            return variable.handle.op.get_attr("shared_name").decode()
        return variable.handle if self._kind == "resource" else versions.ref_of(variable)

    def _variable(self, value):
        made = v1.get_variable(
            f"v{len(self._made)}",
            initializer=tf.constant(value.array),
            use_resource=self._kind != "ref",
        )
        self._made.append((value, made))
        return made

    def _operation(self):
        given = self._given
        key = given["kernel"]
        words = {
            "names" if self._kind == "named" else "variables": list(
                map(self._input, given["variables"])
            ),
            "scalars": list(map(tf.constant, given["scalars"])),
            "kernel": registered(key).key if key in KERNELS else key,
            "use_locking": given["use_locking"],
        }
        gradients = list(map(tf.constant, given["gradients"]))
        name = "legacy_opt_update"
        if given["operation"] == "rows":
            name += "_rows"
            words.update(gradient=gradients[0], ids=given["ids"], all_rows=given["all_rows"])
        else:
            words["gradients"] = gradients
        name += {"resource": "", "ref": "_ref", "named": "_named"}[self._kind]
        return getattr(tensorflow_operations.load().operations, name)(**words)


def _essence(error):
    """Returns the line of an error that the operations library has written; else all lines."""
    lines = str(error).splitlines()
    return next((line for line in lines if "legacy_opt:" in line), " ".join(lines))


_registered = {}


def registered(name):
    """Returns a kernel of `KERNELS`, which the operations library knows."""
    if name not in _registered:
        _registered[name] = KERNELS[name]()
        tensorflow_operations.register(tensorflow_operations.load(), _registered[name])
    return _registered[name]


def kinds(given):
    return ("resource", "ref") + (("named",) if given["operation"] == "whole" else ())


def outcome(names, given, kind):
    """Returns names, kind, error message or None, and whether all variables are as before."""
    message, before, after = Run(given, kind).outcome()
    return names, kind, message, all(np.array_equal(*pair) for pair in zip(before, after))


def run_single(all_cells):
    """Yields the outcomes of valid arguments, and of arguments with a single fault.

    Args:
      all_cells: whether each fault is tried with all valid arguments and kinds; else with three.
    """
    cells = [(name, base, kind) for name, base in base_cases().items() for kind in kinds(base)]
    for name, base, kind in cells:
        yield outcome([name], base, kind)
    for number, (fault_name, fault) in enumerate({**FAULTS, **HANDLES}.items()):
        fit = [
            (name, fault(base), kind)
            for name, base, kind in cells
            if fault(base) is not None and (fault_name not in HANDLES or kind == "resource")
        ]
        step = 1 if all_cells else max(1, len(fit) // 3)
        for name, given, kind in fit[number % step :: step]:
            yield outcome([name, fault_name], given, kind)


def run_drawn(count):
    """Yields the outcomes of drawn arguments with several faults, which may cancel each other."""
    random = np.random.RandomState(0)
    bases, faults = base_cases(), {**FAULTS, **HANDLES}
    for _ in range(count):
        name = random.choice(sorted(bases))
        given, names = dict(bases[name], use_locking=bool(random.randint(2))), [name]
        for fault in random.choice(sorted(faults), random.randint(2, 5), replace=False):
            changed = faults[fault](given) if given["variables"] else None
            if changed is not None:
                given = changed
                names.append(fault)
        yield outcome(names, given, random.choice(kinds(given)))


def main(how, count):
    tensorflow_operations.build()
    for line in itertools.chain(run_single(how == "full"), run_drawn(int(count))):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
