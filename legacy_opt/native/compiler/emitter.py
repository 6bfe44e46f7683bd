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
from legacy_opt.native.compiler.inputs import KernelInputs
from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import SUMS
from legacy_opt.programs.program import Input, Program, UnsupportedError

# The limits of kernels, as in sources/kernel.h.
MOST_SLOTS, MOST_SCALARS, MOST_SUMS = 8, 32, 8
_LEVELS_OF_SUMS = (programs.SCALAR, programs.MATRIX, programs.MATRIX_ROW, programs.MATRIX_COLUMN)
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

    Methods take and return a value as its position among the nodes of the program.
    """

    _SUM_SIGNATURE = [
        "static void reduce(const void* value, const void* const* slots, const void* gradient,",
        "                   const void* from, int64_t n, double* sums) {",
    ]
    _UPDATE_SIGNATURE = [
        "static void update(void* value, void* const* slots, const void* gradient,",
        "                   const void* from, int64_t n) {",
    ]

    def __init__(self, program: Program, inputs: KernelInputs) -> None:
        self._program = program
        self._inputs = inputs
        self._nodes = program.nodes
        self._stages = programs.stages(program.nodes)
        self._source = ['#include "kernel.h"', '#include "elementary.h"', ""]
        # The values that are computed once per update or row, before the loop over elements.
        self._hoisted = self._of_level(programs.SCALAR, programs.ROW)
        self._sums = program.sums(programs.SCALAR)

    def source(self) -> str:
        program = self._program
        self._check_limits()
        self._struct("hoisted_t", self._hoisted)
        self._prepare()
        self._functions()
        if program.fades:
            self._fade()
        if self._inputs.scalar_slots:
            self._finish()
        self._add()
        self._table()
        return "\n".join(self._source) + "\n"

    def _functions(self) -> None:
        """Writes the functions that `MatrixEmitter` writes differently."""
        if self._inputs.row_slots:
            self._prepare_row()
        if self._sums:
            self._reduce()
            self._after_sums()
        self._update()

    def _prepare(self) -> None:
        nodes = self._before_sums(programs.SCALAR)
        self._open("prepare(const void* const* scalars, const void* const* scalar_slots, void* to)")
        self._hoist(nodes)
        self._close()

    def _prepare_row(self) -> None:
        nodes = self._before_sums(programs.ROW)
        self._open("prepare_row(void* const* row_slots, void* to)")
        self._hoist(nodes)
        for i, slot in enumerate(self._inputs.row_slots):
            self._write_slot(slot, f"*({stored_type(slot.dtype)}*)row_slots[{i}]")
        self._close()

    def _reduce(self) -> None:
        """Writes the C function that computes the sums of `self._sums`.

        For each sum, the C function adds element i to the partial sum i % 16, then adds the 16
        partial sums. The result is the same for vector instructions of any length.
        """
        count = len(self._sums)
        self._terms("reduce", [self._nodes[i].inputs[0] for i in self._sums])
        self._source += [
            *self._SUM_SIGNATURE,
            f"  double parts[{count}][16] = {{{{0}}}}, terms[{count}][512];",
            "  for (int64_t first = 0; first < n; first += 512) {",
            "    const int64_t m = n - first < 512 ? n - first : 512;",
            self._call_terms("reduce", count),
            f"    for (int k = 0; k < {count}; ++k) add_terms(parts[k], terms[k], m);",
            "  }",
            f"  for (int k = 0; k < {count}; ++k) sums[k] = total(parts[k]);",
        ]
        self._close()

    def _terms(self, name: str, operands: Sequence[int]) -> None:
        """Writes a C function that computes the terms of sums, for at most 512 elements."""
        terms = "".join(f", double* restrict terms{i}" for i in range(len(operands)))
        arrays = self._array_parameters("const ")
        self._element_loop(
            f"{name}_block({arrays}, {self._outer_parameters()}, int64_t n{terms})",
            [(operand, f"terms{k}[i] = (double){{}};") for k, operand in enumerate(operands)],
        )
        if not any("add_terms(" in line for line in self._source):
            self._source += _ADDITION

    def _call_terms(self, name: str, count: int) -> str:
        terms = "".join(f", terms[{i}]" for i in range(count))
        arrays = self._array_arguments("const ", "first")
        return f"    {name}_block({arrays}, {self._outer_arguments('first')}, m{terms});"

    def _outer_parameters(self) -> str:
        """Returns C parameters for the values that are computed before a loop over elements.

        `_outer_arguments` returns the arguments for a loop that begins at the element `first`.
        """
        return "const hoisted_t* from"

    def _outer_arguments(self, first: str) -> str:
        del first
        return "from"

    def _after_sums(self) -> None:
        nodes = [i for i in self._hoisted if self._stages[i] == programs.AFTER_SUMS]
        if any(self._nodes[i].level == programs.ROW for i in nodes):
            raise UnsupportedError("kernels cannot compute a value per row from a sum")
        self._open("after_sums(const double* sums, int64_t count, void* to)")
        self._hoist(nodes)
        self._close()

    def _results(self) -> List[Tuple[int, str]]:
        """Returns pairs: a new value of an element, and the C statement that stores the value."""
        program = self._program
        results = [(program.value, store(program.dtype, "value[i]"))]
        for k, slot in enumerate(self._inputs.slots):
            if slot.name in program.changes:
                new = program.changes[slot.name].node
                results.append((new, store(slot.dtype, f"slot{k}[i]")))
        return results

    def _update(self) -> None:
        signature = f"{self._array_parameters('')}, {self._outer_parameters()}, int64_t n"
        self._element_loop(f"update_all({signature})", self._results())
        self._source += self._UPDATE_SIGNATURE
        arguments = f"{self._array_arguments('', '0')}, {self._outer_arguments('0')}"
        self._source.append(f"  update_all({arguments}, n);")
        self._close()

    def _fade(self) -> None:
        self._source += [
            "static void fade(void* const* slots, const void* from_, int64_t n) {",
            "  const hoisted_t* from = from_;",
        ]
        for i, slot in enumerate(self._inputs.slots):
            change = self._program.changes.get(slot.name)
            if change is not None and change.factor is not None:
                factor = change.factor
                faded = rounded(slot.dtype, f"{load(slot.dtype, 'slot[i]')} * factor")
                statement = store(slot.dtype, "slot[i]").format(faded)
                factor_text = self._hoisted_text(factor, "from")
                self._source += [
                    f"  {{ {stored_type(slot.dtype)}* slot = slots[{i}];",
                    f"    const {self._type(factor)} factor = {factor_text};",
                    f"    for (int64_t i = 0; i < n; ++i) {statement} }}",
                ]
        self._close()

    def _finish(self) -> None:
        self._source += [
            "static void finish(void* const* scalar_slots, const void* from_) {",
            "  const hoisted_t* to = from_;",
        ]
        for i, slot in enumerate(self._inputs.scalar_slots):
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
        inputs = self._inputs
        counts = ", ".join(str(len(each)) for each in inputs)
        self._source += [
            '__attribute__((visibility("default"))) const legacy_opt_kernel legacy_opt_table = {',
            f"  LEGACY_OPT_ABI, sizeof(hoisted_t), {DTYPES[self._program.dtype][0]},",
            f"  {counts}, {len(self._sums)},",
            f"  {{{_dtype_numbers(inputs.scalars)}}}, {{{_dtype_numbers(inputs.all_slots)}}},",
            *(f"  .{name} = {value}," for name, value in self._table_fields()),
            "};",
        ]

    def _table_fields(self) -> List[Tuple[str, Any]]:
        """Returns the named fields of the kernel's table, as (name, value), without zero fields."""
        is_written = {
            "prepare": True,
            "prepare_row": self._inputs.row_slots,
            "reduce": self._sums,
            "after_sums": self._sums,
            "update": True,
            "fade": self._program.fades,
            "finish": self._inputs.scalar_slots,
            "add": True,
        }
        return [(name, name) for name in is_written if is_written[name]]

    # Helpers of the methods above.

    def _of_level(self, *levels: str) -> List[int]:
        """Returns the nodes of some levels, without constants."""
        nodes = enumerate(self._nodes)
        return [i for i, node in nodes if node.level in levels and node.operation != "Const"]

    def _before_sums(self, level: str) -> List[int]:
        return [i for i in self._of_level(level) if self._stages[i] < programs.AFTER_SUMS]

    def _type(self, i: int) -> str:
        return type_of(self._nodes[i].dtype)

    def _text(self, i: int) -> str:
        return text_of(self._nodes, i)

    def _hoisted_text(self, i: int, struct: str) -> str:
        """Returns the C expression of a hoisted value, which may be a constant."""
        is_constant = self._nodes[i].operation == "Const"
        return self._text(i) if is_constant else f"{struct}->{name_of(i)}"

    def _struct(self, name: str, nodes: Sequence[int]) -> None:
        fields = "".join(f" {self._type(i)} {name_of(i)};" for i in nodes)
        self._source.append(f"typedef struct {{ char unused;{fields} }} {name};\n")

    def _open(self, signature: str) -> None:
        self._source += [f"static void {signature} {{", "  hoisted_t* const h = to; (void)h;"]

    def _close(self) -> None:
        self._source += ["}", ""]

    def _hoist(self, nodes: Sequence[int]) -> None:
        """Writes statements that compute nodes and store them in the struct of hoisted values."""
        operands = {each for i in nodes for each in self._nodes[i].inputs}
        computed_earlier = operands.difference(nodes).intersection(self._hoisted)
        for i in sorted(computed_earlier):
            self._read_hoisted(i, "h")
        for i in nodes:
            name, code = name_of(i), self._code(i)
            self._source.append(f"  const {self._type(i)} {name} = h->{name} = {code};")

    def _read_hoisted(self, i: int, struct: str) -> None:
        value = self._hoisted_text(i, struct)
        self._source.append(f"  const {self._type(i)} {name_of(i)} = {value};")

    def _write_slot(self, slot: Input, place: str) -> None:
        change = self._program.changes.get(slot.name)
        if change is None:
            return
        value = self._hoisted_text(change.node, "((const hoisted_t*)to)")
        if change.how == programs.ADD:
            value = rounded(slot.dtype, f"{load(slot.dtype, place)} + {value}")
        self._source.append("  " + store(slot.dtype, place).format(value))

    def _element_loop(self, signature: str, results: List[Tuple[int, str]]) -> None:
        """Writes a C function that computes `results` of all elements; see `_results`."""
        needed = self._program.needed_for([i for i, _ in results])
        self._source.append(f"VECTORIZED static void {signature} {{")
        for i in self._hoisted:
            if i in needed:
                self._read_hoisted(i, "from")
        self._read_rows(needed)
        choices = {}  # {node that selects by a scalar: (condition, value, other value)}
        for i in needed.intersection(self._of_level(programs.ELEMENT)):
            node = self._nodes[i]
            condition = node.inputs[0] if node.operation == "Select" else None
            if condition is not None and self._nodes[condition].level == programs.SCALAR:
                choices[i] = node.inputs
        conditions = {condition for condition, _, _ in choices.values()}
        if len(conditions) == 1:
            # Two loops, because in a single loop compilers would compute both values.
            self._source.append(f"  if ({self._text(conditions.pop())}) {{")
            self._loop(needed, results, {i: value for i, (_, value, _) in choices.items()})
            self._source.append("  } else {")
            self._loop(needed, results, {i: other for i, (_, _, other) in choices.items()})
            self._source.append("  }")
        else:
            self._loop(needed, results, chosen={})
        self._source += ["}", ""]

    def _loop(
        self, needed: Set[int], results: List[Tuple[int, str]], chosen: Dict[int, int]
    ) -> None:
        """Writes a loop over elements; `chosen` is {node that selects: the selected operand}."""
        self._source.append("  for (int64_t i = 0; i < n; ++i) {")
        for i in sorted(needed):
            name = name_of(i)
            if self._nodes[i].level == programs.MATRIX_COLUMN:
                self._source.append(f"    const {self._type(i)} {name} = column_{name}[i];")
            if self._nodes[i].level == programs.ELEMENT:
                code = self._text(chosen[i]) if i in chosen else self._code(i)
                self._source.append(f"    const {self._type(i)} {name} = {code};")
        self._source += ["    " + statement.format(self._text(i)) for i, statement in results]
        self._source.append("  }")

    def _read_rows(self, needed: Set[int]) -> None:
        """Writes C code that reads the values of a matrix row; only in `MatrixEmitter`."""

    def _array_parameters(self, const: str) -> str:
        kind = stored_type(self._program.dtype)
        slots = [
            f"{const}{stored_type(slot.dtype)}* restrict slot{i}"
            for i, slot in enumerate(self._inputs.slots)
        ]
        arrays = [f"{const}{kind}* restrict value", *slots]
        return ", ".join([*arrays, f"const {kind}* restrict gradient"])

    def _array_arguments(self, const: str, first: str) -> str:
        kind = stored_type(self._program.dtype)
        slots = [
            f"({const}{stored_type(slot.dtype)}*)slots[{i}] + {first}"
            for i, slot in enumerate(self._inputs.slots)
        ]
        pointers = [f"({const}{kind}*)value + {first}", *slots]
        return ", ".join([*pointers, f"(const {kind}*)gradient + {first}"])

    def _code(self, i: int) -> str:
        """Returns the C expression of a node."""
        node = self._nodes[i]
        if node.operation == "Input":
            return load(node.dtype, self._place_of(*node.detail))
        if node.operation in SUMS:
            return self._sum_of(i, f"sums[{self._number_of(i)}]", "count")
        return expression(self._nodes, i)

    def _number_of(self, i: int) -> int:
        """Returns the position of a sum among the sums of its level."""
        return self._program.sums(self._nodes[i].level).index(i)

    def _sum_of(self, i: int, total: str, count: str) -> str:
        node = self._nodes[i]
        if node.dtype.startswith("int"):
            return sum_of_integers(self._nodes, i, total)
        mean = f" / (double){count}" if node.operation == "Mean" else ""
        return rounded(node.dtype, f"({self._type(i)})({total}{mean})")

    def _place_of(self, kind: str, name: str) -> str:
        """Returns the C expression of an input, by its kind and name."""
        if kind == programs.TENSOR:
            return f"{name}[i]"
        for array, inputs in self._inputs._asdict().items():
            for k, each in enumerate(inputs):
                if each.key == (kind, name):
                    return self._place_in(array, k, stored_type(each.dtype))
        raise UnsupportedError(f"kernels have no input {name!r}")

    def _place_in(self, array: str, k: int, kind: str) -> str:
        """Returns the C expression of the k-th value in one of the arrays of `KernelInputs`."""
        return f"slot{k}[i]" if array == "slots" else f"*(const {kind}*){array}[{k}]"

    def _check_limits(self) -> None:
        counts = [
            ("slots", len(self._inputs.all_slots), MOST_SLOTS),
            ("hyperparameters", len(self._inputs.scalars), MOST_SCALARS),
        ]
        counts += [("sums", len(self._program.sums(each)), MOST_SUMS) for each in _LEVELS_OF_SUMS]
        for kind, count, limit in counts:
            if count > limit:
                raise UnsupportedError(
                    f"a kernel has at most {limit} {kind}, but this rule has {count}"
                )


def _dtype_numbers(inputs: Sequence[Input]) -> str:
    return ", ".join(str(DTYPES[each.dtype][0]) for each in inputs) or "0"
