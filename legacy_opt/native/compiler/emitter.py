"""Writes the C functions of a kernel, whose interface is sources/kernel.h."""

from __future__ import annotations

from typing import Any, Dict, List, Sequence, Set, Tuple

from legacy_opt.native.compiler.expressions import (
    DTYPES,
    expression,
    load,
    name_of,
    rounded,
    store,
    stored_type,
    sum_of_integers,
    text_of,
    type_of,
)
from legacy_opt.programs.program import (
    ADD,
    AFTER_SUMS,
    ELEMENT,
    GRADIENT,
    MATRIX,
    MATRIX_COLUMN,
    MATRIX_ROW,
    MOST_SCALARS,
    MOST_SLOTS,
    MOST_SUMS,
    ROW,
    SCALAR,
    SUMS,
    VALUE,
    Input,
    Node,
    Program,
    UnsupportedError,
    needed_for,
)

_LEVELS_OF_SUMS = (SCALAR, MATRIX, MATRIX_ROW, MATRIX_COLUMN)
# `add_terms` adds n terms to 16 partial sums, and `total` adds up the partial sums.
_ADDITION = [
    "VECTORIZED static void add_terms(double* restrict parts, double* terms, int64_t n) {",
    "  for (; n % 16; ++n) terms[n] = 0;",
    "  for (int64_t first = 0; first < n; first += 16)",
    "    for (int i = 0; i < 16; ++i) parts[i] += terms[first + i];",
    "}",
    "",
    "static double total(double* parts) {",
    "  for (int half = 8; half; half /= 2)",
    "    for (int i = 0; i < half; ++i) parts[i] += parts[i + half];",
    "  return parts[0];",
    "}",
    "",
]


class Emitter:
    """Writes the functions of a kernel, in the order of sources/kernel.h.

    Args:
      program: the program.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._source = ['#include "kernel.h"', '#include "elementary.h"', ""]
        # The values that are computed once per update or row, before the loop over elements.
        self._hoisted = [
            node
            for node in program.nodes
            if node.level in (SCALAR, ROW) and node.operation != "Const"
        ]
        self._sums = program.sums(SCALAR)

    def source(self) -> str:
        """Returns the C source."""
        program = self._program
        _check_limits(program)
        self._struct("hoisted_t", self._hoisted)
        self._prepare()
        self._functions()
        if program.fades:
            self._fade()
        if program.scalar_slots:
            self._finish()
        self._add()
        self._table()
        return "\n".join(self._source) + "\n"

    def _functions(self) -> None:
        """Writes the functions that `MatrixEmitter` writes differently."""
        if self._program.row_slots:
            self._prepare_row()
        if self._sums:
            self._sum("reduce", "sums")
            self._after_sums()
        self._update()

    def _prepare(self) -> None:
        nodes = [n for n in self._hoisted if n.level == SCALAR and n.stage < AFTER_SUMS]
        self._open("prepare(const void* const* scalars, const void* const* scalar_slots, void* to)")
        self._hoist(nodes)
        self._close()

    def _prepare_row(self) -> None:
        nodes = [node for node in self._hoisted if node.level == ROW and node.stage < AFTER_SUMS]
        self._open("prepare_row(void* const* row_slots, void* to)")
        self._hoist(nodes)
        for i, slot in enumerate(self._program.row_slots):
            self._write_slot(slot, f"*({stored_type(slot.dtype)}*)row_slots[{i}]")
        self._close()

    def _sum(self, name: str, sums: str) -> None:
        """Writes the C function `name`, which computes the sums of `self._sums`.

        For each sum, the C function adds element i to the partial sum i % 16, then adds the 16
        partial sums. So the result does not depend on the length of vector instructions.
        """
        count = len(self._sums)
        self._terms(name, [node.inputs[0] for node in self._sums])
        self._source += [
            *self._sum_signature(name, f"double* {sums}"),
            f"  double parts[{count}][16] = {{{{0}}}}, terms[{count}][512];",
            "  for (int64_t first = 0; first < n; first += 512) {",
            "    const int64_t m = n - first < 512 ? n - first : 512;",
            self._call_terms(name, count),
            f"    for (int k = 0; k < {count}; ++k) add_terms(parts[k], terms[k], m);",
            "  }",
            f"  for (int k = 0; k < {count}; ++k) {sums}[k] = total(parts[k]);",
        ]
        self._close()

    def _terms(self, name: str, operands: Sequence[Node]) -> None:
        """Writes a C function that computes the terms of sums, for at most 512 elements."""
        terms = "".join(f", double* restrict terms{i}" for i in range(len(operands)))
        arrays = self._array_parameters("const ")
        self._element_loop(
            f"{name}_block({arrays}, {self._outer_parameters()}, int64_t n{terms})",
            [(node, f"terms{i}[i] = (double){{}};") for i, node in enumerate(operands)],
        )
        if not any("add_terms(" in line for line in self._source):
            self._source += _ADDITION

    def _call_terms(self, name: str, count: int) -> str:
        terms = "".join(f", terms[{i}]" for i in range(count))
        arrays = self._array_arguments("const ", "first")
        return f"    {name}_block({arrays}, {self._outer_arguments('first')}, m{terms});"

    def _sum_signature(self, name: str, sums: str) -> List[str]:
        return [
            f"static void {name}(const void* value, const void* const* slots, "
            "const void* gradient,",
            f"                   const void* from, int64_t n, {sums}) {{",
        ]

    def _outer_parameters(self) -> str:
        """Returns C parameters for the values that are computed before a loop over elements.

        `_outer_arguments` returns the arguments for a loop that begins at the element `first`.
        """
        return "const hoisted_t* from"

    def _outer_arguments(self, first: str) -> str:
        del first
        return "from"

    def _after_sums(self) -> None:
        nodes = [node for node in self._hoisted if node.stage == AFTER_SUMS]
        if any(node.level == ROW for node in nodes):
            raise UnsupportedError("kernels cannot compute a value per row from a sum")
        self._open("after_sums(const double* sums, int64_t count, void* to)")
        self._hoist(nodes)
        self._close()

    def _results(self) -> List[Tuple[Node, str]]:
        """Returns pairs: a new value of an element, and the C statement that stores the value."""
        program = self._program
        results = [(program.value, store(program.dtype, "value[i]"))]
        for i, slot in enumerate(program.slots):
            if slot.name in program.changes:
                node = program.changes[slot.name].node
                results.append((node, store(slot.dtype, f"slot{i}[i]")))
        return results

    def _update(self) -> None:
        signature = f"{self._array_parameters('')}, {self._outer_parameters()}, int64_t n"
        self._element_loop(f"update_all({signature})", self._results())
        self._source += self._update_signature()
        arguments = f"{self._array_arguments('', '0')}, {self._outer_arguments('0')}"
        self._source.append(f"  update_all({arguments}, n);")
        self._close()

    def _update_signature(self) -> List[str]:
        return [
            "static void update(void* value, void* const* slots, const void* gradient,",
            "                   const void* from, int64_t n) {",
        ]

    def _fade(self) -> None:
        self._source += [
            "static void fade(void* const* slots, const void* from_, int64_t n) {",
            "  const hoisted_t* from = from_;",
        ]
        for i, slot in enumerate(self._program.slots):
            change = self._program.changes.get(slot.name)
            if change is not None and change.factor is not None:
                factor = change.factor
                faded = rounded(slot.dtype, f"{load(slot.dtype, 'slot[i]')} * factor")
                self._source += [
                    f"  {{ {stored_type(slot.dtype)}* slot = slots[{i}];",
                    f"    const {type_of(factor)} factor = {_hoisted(factor, 'from')};",
                    f"    for (int64_t i = 0; i < n; ++i) "
                    f"{store(slot.dtype, 'slot[i]').format(faded)} }}",
                ]
        self._close()

    def _finish(self) -> None:
        self._source += [
            "static void finish(void* const* scalar_slots, const void* from_) {",
            "  const hoisted_t* to = from_;",
        ]
        for i, slot in enumerate(self._program.scalar_slots):
            self._write_slot(slot, f"*({stored_type(slot.dtype)}*)scalar_slots[{i}]")
        self._close()

    def _add(self) -> None:
        dtype = self._program.dtype
        kind = stored_type(dtype)
        added = rounded(dtype, f"{load(dtype, 'to[i]')} + {load(dtype, 'from[i]')}")
        self._source += [
            "VECTORIZED static void add_all("
            f"{kind}* restrict to, const {kind}* restrict from, int64_t n) {{",
            f"  for (int64_t i = 0; i < n; ++i) {store(dtype, 'to[i]').format(added)}",
            "}",
            "static void add(void* to, const void* from, int64_t n) { add_all(to, from, n); }",
            "",
        ]

    def _table(self) -> None:
        program = self._program
        slots = [program.slots, program.row_slots, program.column_slots, program.scalar_slots]
        counts = [len(each) for each in [program.scalars, *slots]]
        self._source += [
            '__attribute__((visibility("default"))) const legacy_opt_kernel legacy_opt_table = {',
            f"  LEGACY_OPT_ABI, sizeof(hoisted_t), {DTYPES[program.dtype][0]},",
            f"  {', '.join(map(str, counts))}, {len(self._sums)},",
            f"  {{{_dtype_numbers(program.scalars)}}}, {{{_dtype_numbers(program.all_slots)}}},",
            *(f"  .{name} = {value}," for name, value in self._table_fields()),
            "};",
        ]

    def _table_fields(self) -> List[Tuple[str, Any]]:
        """Returns the other fields of the kernel's table, as (name, value), without zero fields."""
        program = self._program
        is_written = {
            "prepare": True,
            "prepare_row": program.row_slots,
            "reduce": self._sums,
            "after_sums": self._sums,
            "update": True,
            "fade": program.fades,
            "finish": program.scalar_slots,
            "add": True,
        }
        return [(name, name) for name in is_written if is_written[name]]

    # Helpers of the methods above.

    def _struct(self, name: str, nodes: Sequence[Node]) -> None:
        fields = "".join(f" {type_of(node)} {name_of(node)};" for node in nodes)
        self._source.append(f"typedef struct {{ char unused;{fields} }} {name};\n")

    def _open(self, signature: str) -> None:
        self._source += [f"static void {signature} {{", "  hoisted_t* const h = to; (void)h;"]

    def _close(self) -> None:
        self._source += ["}", ""]

    def _hoist(self, nodes: Sequence[Node]) -> None:
        """Writes statements that compute nodes and store them in the struct of hoisted values."""
        operands = {each for node in nodes for each in node.inputs if each.operation != "Const"}
        for node in sorted(operands - set(nodes), key=lambda each: each.number):
            if node.level < ELEMENT:
                self._read_hoisted(node, "h")
        for node in nodes:
            code = self._code(node)
            name = name_of(node)
            self._source.append(f"  const {type_of(node)} {name} = h->{name} = {code};")

    def _read_hoisted(self, node: Node, struct: str) -> None:
        name = name_of(node)
        self._source.append(f"  const {type_of(node)} {name} = {_hoisted(node, struct)};")

    def _write_slot(self, slot: Input, place: str) -> None:
        change = self._program.changes.get(slot.name)
        if change is None:
            return
        value = _hoisted(change.node, "((const hoisted_t*)to)")
        if change.how == ADD:
            value = rounded(slot.dtype, f"{load(slot.dtype, place)} + {value}")
        self._source.append("  " + store(slot.dtype, place).format(value))

    def _element_loop(self, signature: str, results: List[Tuple[Node, str]]) -> None:
        needed = needed_for([node for node, _ in results])
        self._source.append(f"VECTORIZED static void {signature} {{")
        for node in self._hoisted:
            if node in needed:
                self._read_hoisted(node, "from")
        self._read_rows(needed)
        choices = [
            node
            for node in needed
            if node.operation == "Select"
            and node.level == ELEMENT
            and node.inputs[0].level == SCALAR
        ]
        conditions = {node.inputs[0] for node in choices}
        if len(conditions) == 1:
            # A loop for each answer, because compilers would compute both values of each choice.
            (condition,) = conditions
            self._source.append(f"  if ({text_of(condition)}) {{")
            self._loop(needed, results, {node: node.inputs[1] for node in choices})
            self._source.append("  } else {")
            self._loop(needed, results, {node: node.inputs[2] for node in choices})
            self._source.append("  }")
        else:
            self._loop(needed, results, {})
        self._source += ["}", ""]

    def _loop(
        self, needed: Set[Node], results: List[Tuple[Node, str]], chosen: Dict[Node, Node]
    ) -> None:
        """Writes a loop; `chosen` is a dict from nodes to the nodes that they are equal to."""
        self._source.append("  for (int64_t i = 0; i < n; ++i) {")
        for node in self._program.nodes:
            if node.level == MATRIX_COLUMN and node in needed:
                name = name_of(node)
                self._source.append(f"    const {type_of(node)} {name} = column_{name}[i];")
            if node.level == ELEMENT and node in needed:
                code = text_of(chosen[node]) if node in chosen else self._code(node)
                self._source.append(f"    const {type_of(node)} {name_of(node)} = {code};")
        self._source += ["    " + statement.format(text_of(node)) for node, statement in results]
        self._source.append("  }")

    def _read_rows(self, needed: Set[Node]) -> None:
        """Writes C code that reads the values of a matrix row; only in `MatrixEmitter`."""

    def _array_parameters(self, const: str) -> str:
        kind = stored_type(self._program.dtype)
        slots = [
            f"{const}{stored_type(slot.dtype)}* restrict slot{i}"
            for i, slot in enumerate(self._program.slots)
        ]
        arrays = [f"{const}{kind}* restrict value", *slots]
        return ", ".join([*arrays, f"const {kind}* restrict gradient"])

    def _array_arguments(self, const: str, first: str) -> str:
        kind = stored_type(self._program.dtype)
        slots = [
            f"({const}{stored_type(slot.dtype)}*)slots[{i}] + {first}"
            for i, slot in enumerate(self._program.slots)
        ]
        pointers = [f"({const}{kind}*)value + {first}", *slots]
        return ", ".join([*pointers, f"(const {kind}*)gradient + {first}"])

    def _code(self, node: Node) -> str:
        """Returns the C expression of a node."""
        if node.operation == "Input":
            return load(node.dtype, self._input_place(node.detail))
        if node.operation in SUMS:
            return self._sum_of(node, f"sums[{node.detail}]", "count")
        return expression(node)

    def _sum_of(self, node: Node, total: str, count: str) -> str:
        if node.dtype.startswith("int"):
            return sum_of_integers(node, total)
        mean = f" / (double){count}" if node.operation == "Mean" else ""
        return rounded(node.dtype, f"({type_of(node)})({total}{mean})")

    def _input_place(self, input_: Input) -> str:
        program = self._program
        if input_.name == GRADIENT:
            return "gradient[i]"
        if input_.name == VALUE:
            return "value[i]"
        if input_ in program.slots:
            return f"slot{program.slots.index(input_)}[i]"
        arrays = {
            "scalars": program.scalars,
            "row_slots": program.row_slots,
            "scalar_slots": program.scalar_slots,
        }
        for array, inputs in arrays.items():
            if input_ in inputs:
                return f"*(const {stored_type(input_.dtype)}*){array}[{inputs.index(input_)}]"
        raise UnsupportedError(f"kernels have no input {input_.name!r}")


def _hoisted(node: Node, struct: str) -> str:
    """Returns the C expression of a hoisted value, which may be a constant."""
    return text_of(node) if node.operation == "Const" else f"{struct}->{name_of(node)}"


def _check_limits(program: Program) -> None:
    counts = [
        ("slots", len(program.all_slots), MOST_SLOTS),
        ("hyperparameters", len(program.scalars), MOST_SCALARS),
    ]
    counts += [("sums", len(program.sums(level)), MOST_SUMS) for level in _LEVELS_OF_SUMS]
    for kind, count, limit in counts:
        if count > limit:
            raise UnsupportedError(
                f"a kernel has at most {limit} {kind}, but this rule has {count}"
            )


def _dtype_numbers(inputs: Sequence[Input]) -> str:
    return ", ".join(str(DTYPES[each.dtype][0]) for each in inputs) or "0"
