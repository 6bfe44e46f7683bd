"""Writes kernels of rules that have values per row and column of matrices, such as Adafactor's.

A kernel reads the matrices up to three times: to compute sums over rows and columns, to compute
sums over all elements, and to update all elements.
"""

from __future__ import annotations

from typing import Any, List, Sequence, Set, Tuple

from legacy_opt.native.compiler.emitter import Emitter
from legacy_opt.native.compiler.expressions import name_of, store, stored_type
from legacy_opt.native.compiler.inputs import KernelInputs
from legacy_opt.programs import program as programs
from legacy_opt.programs.operations import SUMS
from legacy_opt.programs.program import Input, Program


class MatrixEmitter(Emitter):
    """Writes the functions of a kernel for stacks of matrices, in the order of sources/kernel.h."""

    _SUM_SIGNATURE = [
        "static void reduce(const void* value, const void* const* slots, const void* gradient,",
        "                   const void* from, const void* row, const void* columns,",
        "                   int64_t n, double* sums) {",
    ]
    _UPDATE_SIGNATURE = [
        "static void update(void* value, void* const* slots, const void* gradient,",
        "                   const void* from, const void* row, const void* columns,",
        "                   int64_t n) {",
    ]

    def __init__(self, program: Program, inputs: KernelInputs) -> None:
        super().__init__(program, inputs)
        self._row_sums = program.sums(programs.MATRIX_ROW)
        self._column_sums = program.sums(programs.MATRIX_COLUMN)
        self._rows = self._of_level(programs.MATRIX, programs.MATRIX_ROW)  # the fields of row_t
        self._all_columns = self._of_level(programs.MATRIX_COLUMN)
        # The values per column that loops over elements read.
        changes = [program.changes.get(each.name) for each in inputs.slots]
        new_values = [each.node for each in changes if each is not None]
        used = program.needed_for([*self._of_level(programs.ELEMENT), program.value, *new_values])
        self._columns = [i for i in self._all_columns if i in used]
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
            self._reduce()
            self._after_sums()
        self._update()

    def _reduce_rows_and_columns(self) -> None:
        """Writes the C function that adds one row of a matrix to the sums over rows and columns."""
        sums = self._row_sums + self._column_sums
        operand_of = {i: self._nodes[i].inputs[0] for i in sums}
        operands = list(dict.fromkeys(operand_of.values()))
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
        for k, i in enumerate(self._column_sums):
            terms = f"terms[{operands.index(operand_of[i])}]"
            self._source.append(f"    add_column_terms(column_sums + {k} * n + first, {terms}, m);")
        self._source += [
            f"    for (int k = 0; k < {count}; ++k) add_terms(parts[k], terms[k], m);",
            "  }",
        ]
        for k, i in enumerate(self._row_sums):
            part = operands.index(operand_of[i])
            self._source.append(f"  row_sums[{k}] = total(parts[{part}]);")
        self._close()

    def _terms(self, name: str, operands: Sequence[int]) -> None:
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
        rows, matrices = self._of_level(programs.MATRIX_ROW), self._of_level(programs.MATRIX)
        before_matrices = [i for i in rows if self._stages[i] < programs.AFTER_MATRICES]
        after_matrices = [i for i in rows if self._stages[i] >= programs.AFTER_MATRICES]
        sums = [i for i in matrices if self._nodes[i].operation in SUMS]
        self._source += [
            "VECTORIZED static void after_rows(void* const* row_slots, const double* sums,",
            "                                  int64_t rows, int64_t count, const void* from_,",
            "                                  void* to) {",
            "  const hoisted_t* from = from_;",
            *(f"  double total{self._number_of(i)} = 0;" for i in sums),
        ]
        self._read_scalars(self._rows, self._inputs.row_slots)
        self._source.append("  for (int64_t i = 0; i < rows; ++i) {")
        self._source.append("    row_t* const h = (row_t*)to + i;")
        self._compute(before_matrices, "h->{} = ")
        for i in sums:
            term = self._text(self._nodes[i].inputs[0])
            self._source.append(f"    total{self._number_of(i)} += (double){term};")
        self._source.append("  }")
        self._compute(matrices, "")
        self._source.append("  for (int64_t i = 0; i < rows; ++i) {")
        self._source.append("    row_t* const h = (row_t*)to + i;")
        for i in before_matrices:
            self._source.append(f"    const {self._type(i)} {name_of(i)} = h->{name_of(i)};")
        for i in matrices:
            self._source.append(f"    h->{name_of(i)} = {name_of(i)};")
        self._compute(after_matrices, "h->{} = ")
        self._write_slots(self._inputs.row_slots, "row_slots")
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
        self._read_scalars(self._all_columns, self._inputs.column_slots)
        self._source.append("  for (int64_t i = 0; i < n; ++i) {")
        self._compute(self._all_columns, "")
        for k, i in enumerate(self._columns):
            self._source.append(f"    {self._column(k, '', 'to')}[i] = {name_of(i)};")
        self._write_slots(self._inputs.column_slots, "column_slots")
        self._source.append("  }")
        self._close()

    def _column(self, k: int, const: str, columns: str) -> str:
        """Returns C code for the k-th values of all columns; see `column_values` in kernel.h."""
        kind = self._type(self._columns[k])
        return f"(({const}{kind}*)(({const}char*){columns} + {k} * 8 * n))"

    def _read_scalars(self, nodes: Sequence[int], slots: Sequence[Input]) -> None:
        read = {each for i in nodes for each in self._nodes[i].inputs}
        changes = [self._program.changes.get(slot.name) for slot in slots]
        read.update(change.node for change in changes if change is not None)
        for i in self._of_level(programs.SCALAR):
            if i in read:
                self._read_hoisted(i, "from")

    def _compute(self, nodes: Sequence[int], also: str) -> None:
        """Writes statements that compute nodes; `also` is "" or a second assignment to {}."""
        for i in nodes:
            name, code = name_of(i), self._code(i)
            self._source.append(f"    const {self._type(i)} {name} = {also.format(name)}{code};")

    def _write_slots(self, slots: Sequence[Input], array: str) -> None:
        for k, slot in enumerate(slots):
            change = self._program.changes.get(slot.name)
            if change is not None:
                place = f"(({stored_type(slot.dtype)}*){array}[{k}])[i]"
                new = self._text(change.node)
                self._source.append("    " + store(slot.dtype, place).format(new))

    def _sum_of(self, i: int, total: str, count: str) -> str:
        number = self._number_of(i)
        total, count = {
            programs.SCALAR: (total, count),
            programs.MATRIX: (f"total{number}", "rows"),
            programs.MATRIX_ROW: (f"sums[i * {len(self._row_sums)} + {number}]", "count"),
            programs.MATRIX_COLUMN: (f"sums[{number} * n + i]", "count"),
        }[self._nodes[i].level]
        return super()._sum_of(i, total, count)

    def _place_in(self, array: str, k: int, kind: str) -> str:
        if array in ("row_slots", "column_slots"):
            return f"((const {kind}*){array}[{k}])[i]"
        return super()._place_in(array, k, kind)

    def _read_rows(self, needed: Set[int]) -> None:
        for i in self._rows:
            if i in needed:
                self._read_hoisted(i, "row")

    def _outer_parameters(self) -> str:
        if not self._has_rows_and_columns:
            return super()._outer_parameters()
        columns = [f", const {self._type(i)}* restrict column_{name_of(i)}" for i in self._columns]
        return super()._outer_parameters() + ", const row_t* row" + "".join(columns)

    def _outer_arguments(self, first: str) -> str:
        if not self._has_rows_and_columns:
            return super()._outer_arguments(first)
        arrays = [self._column(k, "const ", "columns") for k in range(len(self._columns))]
        columns = [f", {each} + {first}" for each in arrays]
        return super()._outer_arguments(first) + ", row" + "".join(columns)

    def _table_fields(self) -> List[Tuple[str, Any]]:
        renamed = {"reduce": "reduce_row", "update": "update_row"}
        fields = [
            (renamed.get(name, name), value)
            for name, value in super()._table_fields()
            if name != "prepare_row"
        ]
        reduces = ["reduce_lines"] if self._row_sums or self._column_sums else []
        return [
            ("row_sums", len(self._row_sums)),
            ("column_sums", len(self._column_sums)),
            ("row_bytes", "sizeof(row_t)"),
            ("column_values", len(self._columns)),
            *fields,
            *((name, name) for name in [*reduces, "after_rows", "after_columns"]),
        ]
