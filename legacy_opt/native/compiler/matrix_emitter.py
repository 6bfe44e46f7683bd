"""Writes kernels of rules that have values per row and column of matrices, such as Adafactor's.

A kernel reads the matrices up to three times: to compute sums over rows and columns, to compute
sums over all elements, and to update all elements.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Set, Tuple

from legacy_opt.native.compiler.emitter import Emitter
from legacy_opt.native.compiler.expressions import name_of, store, stored_type, text_of, type_of
from legacy_opt.programs.program import (
    AFTER_MATRICES,
    ELEMENT,
    MATRIX,
    MATRIX_COLUMN,
    MATRIX_ROW,
    SCALAR,
    SUMS,
    Input,
    Node,
    Program,
    needed_for,
)


class MatrixEmitter(Emitter):
    """Writes the functions of a kernel for stacks of matrices, in the order of sources/kernel.h."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self._row_sums = program.sums(MATRIX_ROW)
        self._column_sums = program.sums(MATRIX_COLUMN)
        nodes = [node for node in program.nodes if node.operation != "Const"]
        self._rows = [node for node in nodes if node.level in (MATRIX, MATRIX_ROW)]
        self._all_columns = [node for node in nodes if node.level == MATRIX_COLUMN]
        # The columns' values that the loops over elements read.
        elements = [node for node in nodes if node.level == ELEMENT]
        changes = [
            program.changes[each.name].node
            for each in program.slots
            if each.name in program.changes
        ]
        used = needed_for([*elements, program.value, *changes])
        self._columns = [node for node in self._all_columns if node in used]
        # Whether the next C function has parameters for the values of rows and columns.
        self._has_rows_and_columns = False

    def _functions(self) -> None:
        self._struct("row_t", self._rows)
        if self._row_sums or self._column_sums:
            self._reduce_rows_and_columns()
        self._after_rows()
        self._after_columns()
        self._has_rows_and_columns = True
        if self._sums:
            self._sum("reduce", "sums")
            self._after_sums()
        self._update()

    def _reduce_rows_and_columns(self) -> None:
        sums = self._row_sums + self._column_sums
        operands = list(dict.fromkeys(node.inputs[0] for node in sums))
        self._terms("reduce_lines", operands)
        count = len(operands)
        self._source += [
            "static void reduce_lines(const void* value, const void* const* slots,",
            "                         const void* gradient, const void* from, int64_t n,",
            "                         double* row_sums, double* column_sums) {",
            f"  double parts[{count}][16] = {{{{0}}}}, terms[{count}][512];",
            "  for (int64_t first = 0; first < n; first += 512) {",
            "    const int64_t m = n - first < 512 ? n - first : 512;",
            self._call_terms("reduce_lines", count),
        ]
        for node in self._column_sums:
            self._source.append(
                f"    add_column_terms(column_sums + {node.detail} * n + first, "
                f"terms[{operands.index(node.inputs[0])}], m);"
            )
        self._source += [
            f"    for (int k = 0; k < {count}; ++k) add_terms(parts[k], terms[k], m);",
            "  }",
        ]
        for node in self._row_sums:
            part = operands.index(node.inputs[0])
            self._source.append(f"  row_sums[{node.detail}] = total(parts[{part}]);")
        self._close()

    def _terms(self, name: str, operands: Sequence[Node]) -> None:
        super()._terms(name, operands)
        if name == "reduce_lines":
            self._source += [
                "VECTORIZED static void add_column_terms(double* restrict to, "
                "const double* restrict terms, int64_t n) {",
                "  for (int64_t i = 0; i < n; ++i) to[i] += terms[i];",
                "}",
                "",
            ]

    def _after_rows(self) -> None:
        """Writes the C function that computes the row values and row slots of one matrix."""
        rows = [node for node in self._rows if node.level == MATRIX_ROW]
        before_matrices = [node for node in rows if node.stage < AFTER_MATRICES]
        after_matrices = [node for node in rows if node.stage >= AFTER_MATRICES]
        matrices = [node for node in self._rows if node.level == MATRIX]
        sums = [node for node in matrices if node.operation in SUMS]
        self._source += [
            "VECTORIZED static void after_rows(void* const* row_slots, const double* sums,",
            "                                  int64_t rows, int64_t count, const void* from_,",
            "                                  void* to) {",
            "  const hoisted_t* from = from_;",
            *(f"  double total{node.detail} = 0;" for node in sums),
        ]
        self._read_scalars(self._rows, self._program.row_slots)
        self._source.append("  for (int64_t i = 0; i < rows; ++i) {")
        self._source.append("    row_t* const h = (row_t*)to + i;")
        self._compute(before_matrices, "h->{} = ")
        for node in sums:
            self._source.append(f"    total{node.detail} += (double){text_of(node.inputs[0])};")
        self._source.append("  }")
        self._compute(matrices, "")
        self._source.append("  for (int64_t i = 0; i < rows; ++i) {")
        self._source.append("    row_t* const h = (row_t*)to + i;")
        for node in before_matrices:
            self._source.append(f"    const {type_of(node)} {name_of(node)} = h->{name_of(node)};")
        for node in matrices:
            self._source.append(f"    h->{name_of(node)} = {name_of(node)};")
        self._compute(after_matrices, "h->{} = ")
        self._write_slots(self._program.row_slots, "row_slots")
        self._source.append("  }")
        self._close()

    def _after_columns(self) -> None:
        """Writes the C function that computes the column values and column slots of one matrix."""
        self._source += [
            "VECTORIZED static void after_columns(void* const* column_slots, const double* sums,",
            "                                     int64_t count, int64_t n, const void* from_,",
            "                                     void* to) {",
            "  const hoisted_t* from = from_;",
        ]
        self._read_scalars(self._all_columns, self._program.column_slots)
        self._source.append("  for (int64_t i = 0; i < n; ++i) {")
        self._compute(self._all_columns, "")
        for k, node in enumerate(self._columns):
            self._source.append(f"    {self._column(k, '', 'to')}[i] = {name_of(node)};")
        self._write_slots(self._program.column_slots, "column_slots")
        self._source.append("  }")
        self._close()

    def _column(self, k: int, const: str, columns: str) -> str:
        """Returns a C expression for the array of the k-th values of all columns.

        `column_values` in sources/kernel.h describes the layout of these arrays.
        """
        kind = type_of(self._columns[k])
        return f"(({const}{kind}*)(({const}char*){columns} + {k} * 8 * n))"

    def _read_scalars(self, nodes: Sequence[Node], slots: Sequence[Input]) -> None:
        read = {each for node in nodes for each in node.inputs}
        changes = [self._program.changes.get(slot.name) for slot in slots]
        read.update(change.node for change in changes if change is not None)
        for node in self._hoisted:
            if node.level == SCALAR and node in read:
                self._read_hoisted(node, "from")

    def _compute(self, nodes: Sequence[Node], also: str) -> None:
        for node in nodes:
            name, code = name_of(node), self._code(node)
            self._source.append(f"    const {type_of(node)} {name} = {also.format(name)}{code};")

    def _write_slots(self, slots: Sequence[Input], array: str) -> None:
        for k, slot in enumerate(slots):
            change = self._program.changes.get(slot.name)
            if change is not None:
                place = f"(({stored_type(slot.dtype)}*){array}[{k}])[i]"
                self._source.append("    " + store(slot.dtype, place).format(text_of(change.node)))

    def _sum_of(self, node: Node, total: str, count: str) -> str:
        total, count = {
            SCALAR: (total, count),
            MATRIX: (f"total{node.detail}", "rows"),
            MATRIX_ROW: (f"sums[i * {len(self._row_sums)} + {node.detail}]", "count"),
            MATRIX_COLUMN: (f"sums[{node.detail} * n + i]", "count"),
        }[node.level]
        return super()._sum_of(node, total, count)

    def _input_place(self, input_: Input) -> str:
        for array in "row_slots", "column_slots":
            slots = getattr(self._program, array)
            if input_ in slots:
                return f"((const {stored_type(input_.dtype)}*){array}[{slots.index(input_)}])[i]"
        return super()._input_place(input_)

    def _read_rows(self, needed: Set[Node]) -> None:
        for node in self._rows:
            if node in needed:
                self._read_hoisted(node, "row")

    def _outer_parameters(self) -> str:
        columns = [
            f", const {type_of(node)}* restrict column_{name_of(node)}" for node in self._columns
        ]
        if not self._has_rows_and_columns:
            return super()._outer_parameters()
        return super()._outer_parameters() + ", const row_t* row" + "".join(columns)

    def _outer_arguments(self, first: str) -> str:
        columns = [
            f", {self._column(k, 'const ', 'columns')} + {first}" for k in range(len(self._columns))
        ]
        if not self._has_rows_and_columns:
            return super()._outer_arguments(first)
        return super()._outer_arguments(first) + ", row" + "".join(columns)

    def _sum_signature(self, name: str, sums: str) -> List[str]:
        return [
            f"static void {name}(const void* value, const void* const* slots, "
            "const void* gradient,",
            "                   const void* from, const void* row, const void* columns,",
            f"                   int64_t n, {sums}) {{",
        ]

    def _update_signature(self) -> List[str]:
        return [
            "static void update(void* value, void* const* slots, const void* gradient,",
            "                   const void* from, const void* row, const void* columns,",
            "                   int64_t n) {",
        ]

    def _table_fields(self) -> List[Tuple[str, Any]]:
        renamed = {"reduce": "reduce_row", "update": "update_row"}
        fields = [(renamed.get(name, name), value) for name, value in super()._table_fields()]
        fields = [field for field in fields if field[0] != "prepare_row"]
        reduces = ["reduce_lines"] if self._row_sums or self._column_sums else []
        return [
            ("row_sums", len(self._row_sums)),
            ("column_sums", len(self._column_sums)),
            ("row_bytes", "sizeof(row_t)"),
            ("column_values", len(self._columns)),
            *fields,
            *((name, name) for name in [*reduces, "after_rows", "after_columns"]),
        ]
