"""Tables that are read column by column: Parquet, CSV with a header, JSON lines. Millions of rows a second.

Tables of signatures are read row by row (``csv.py``, ``rows.py``), because a row in doubt has to be shown. Tables of
addresses, hashes and counts are plain, and a row that cannot be read is counted and named by its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.json

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats import parquet, rows
from sigdir.pipeline.formats.csv import HEADER_SEPARATORS, head_rows, head_table
from sigdir.pipeline.formats.json_reader import first_object
from sigdir.pipeline.formats.tables import SAMPLE_ROWS, Table, plain_name
from sigdir.pipeline.source import Source
from sigdir.signatures.arrow import Array, numbers, text, values
from sigdir.signatures.candidates import fixed_bytes
from sigdir.signatures.errors import counted
from sigdir.warehouse.table.errors import first_line

Names = Mapping[str, Sequence[str]]
"""For each role of a column the names that it may have, without case and marks."""

CHAIN_NAMES = ("chain", "chainid", "network", "networkid")

_BLOCK_BYTES = 1 << 24


class ColumnBatch(NamedTuple):
    """Some rows; ``columns`` are by their roles, and ``first`` is the number of the first row, from 1."""

    first: int
    rows: int
    columns: Mapping[str, pa.Array]


def roles_of(source: Source, names: Names) -> dict[str, str]:
    """The columns of an input that have a role, by their roles; none where it is no such table."""
    try:
        found = {plain_name(name): name for name in reversed(_names(source))}
    except BadInput:
        return {}
    of_role = {role: next((found[one] for one in known if one in found), "") for role, known in names.items()}
    return {role: name for role, name in of_role.items() if name}


def head_of(source: Source) -> Table:
    """The names of an input's columns and its first rows, of which ``tables.py`` tells what they are."""
    if parquet.looks_like(source):
        with parquet.open_table(source) as table:
            return table.head()
    if first_object(source) is not None:
        return rows.head_table(source)
    return max((head_table(source, one) for one in HEADER_SEPARATORS), key=lambda table: len(table.names))


def has_open_texts(source: Source) -> bool:
    """Whether texts of CSV have separators and no quotes, as `0x...,f(uint256,bool)`. Only ``csv.py`` reads these."""
    if parquet.looks_like(source) or first_object(source) is not None:
        return False
    head = max(
        (head_rows(source, SAMPLE_ROWS, one) for one in HEADER_SEPARATORS), key=lambda rows: len(next(iter(rows), []))
    )
    return any(len(row) > len(head[0]) for row in head)


def column_batches(source: Source, roles: Mapping[str, str]) -> Iterator[ColumnBatch]:
    """The rows of these columns; raises BadInput for what cannot be read as a table."""
    first = 1
    with _opened(source, list(dict.fromkeys(roles.values()))) as batches:
        for batch in batches:
            yield ColumnBatch(first, batch.num_rows, {role: batch.column(name) for role, name in roles.items()})
            first += batch.num_rows


def _names(source: Source) -> list[str]:
    if parquet.looks_like(source):
        with parquet.open_table(source) as table:
            return table.names
    row = first_object(source)  # its own members: rows inside it are no rows here
    return list(row) if row is not None else list(head_of(source).names)


@contextmanager
def _opened(source: Source, names: list[str]) -> Iterator[Iterator[pa.RecordBatch]]:
    if parquet.looks_like(source):
        with parquet.open_table(source) as table:
            yield table.batches(names)
        return
    path = source.on_disk()
    try:
        yield iter(_json(path, names) if first_object(source) is not None else _csv(source, path, names))
    except pa.ArrowException as error:
        raise BadInput(source.name, f"not a table: {first_line(error)}") from None


def _csv(source: Source, path: str, names: list[str]) -> Any:
    separator = next(one for one in HEADER_SEPARATORS if {*names} <= {*next(iter(head_rows(source, 2, one)), [])})
    return pyarrow.csv.open_csv(
        path,
        pyarrow.csv.ReadOptions(block_size=_BLOCK_BYTES),
        pyarrow.csv.ParseOptions(delimiter=separator, newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()), include_columns=names, strings_can_be_null=True
        ),
    )


def _json(path: str, names: list[str]) -> Any:
    return pyarrow.json.open_json(
        path, pyarrow.json.ReadOptions(block_size=_BLOCK_BYTES), pyarrow.json.ParseOptions(unexpected_field_behavior="ignore")
    )  # fmt: skip


# Values.


def hashes_of(column: pa.Array, size: int) -> tuple[Array, npt.NDArray[np.bool_]]:
    """Bytes of one size, uint8 of (rows, size), from a column of bytes or of hex digits, and which rows have them."""
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    found, is_good = np.zeros((len(column), size), np.uint8), np.zeros(len(column), np.bool_)
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        is_good = _flags(pc.match_substring_regex(column, f"^(0[xX])?[0-9a-fA-F]{{{2 * size}}}$"))
        digits = pc.utf8_slice_codeunits(column.filter(numbers(is_good)), -2 * size).cast(pa.binary())
        data = bytes.fromhex(fixed_bytes(digits, 2 * size).tobytes().decode())
    elif (
        pa.types.is_binary(column.type)
        or pa.types.is_large_binary(column.type)
        or pa.types.is_fixed_size_binary(column.type)
    ):
        column = column.cast(pa.large_binary())
        is_good = values(column.is_valid()) & (values(pc.binary_length(column)) == size)
        data = fixed_bytes(column.filter(numbers(is_good)).cast(pa.binary()), size).tobytes()
    else:
        return found, is_good
    found[is_good] = np.frombuffer(data, np.uint8).reshape(-1, size)
    return found, is_good


def _flags(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Flags; a null is false."""
    found: npt.NDArray[np.bool_] = values(column) & values(column.is_valid())
    return found


_FRACTION = r"^[0-9]+(\.[0-9]+)?([eE]\+?[0-9]+)?$"


def integers_of(column: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """Numbers from 0 to 2^64 - 1, from a column of numbers or of digits, and which rows have them. Of fractions, as sums and
    columns with gaps are written, those to 2^53 that are whole.
    """
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_integer(column.type):
        found = values(column)
        return found.astype(np.uint64), values(column.is_valid()) & (found >= 0)
    if pa.types.is_floating(column.type) or pa.types.is_decimal(column.type):
        return _whole(column)
    written = _texts(column)
    is_number = pc.match_substring_regex(written, r"^[0-9]{1,19}$")
    exact = values(pc.if_else(is_number, written, text("0")).cast(pa.uint64()))
    whole, is_whole = _whole(pc.if_else(pc.match_substring_regex(written, _FRACTION), written, text("nan")))
    return np.where(_flags(is_number), exact, whole), _flags(is_number) | is_whole


def _whole(column: pa.Array) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    found = values(column.cast(pa.float64()).fill_null(-1))
    is_whole = (found >= 0) & (found <= 1 << 53) & (found == np.floor(found))
    return np.where(is_whole, found, 0).astype(np.uint64), is_whole


def _texts(column: pa.Array) -> pa.Array:
    """The values of a column as text; null where it has lists, objects, or bytes that are no text."""
    try:
        return column.cast(pa.string())
    except pa.ArrowException:
        return pa.nulls(len(column), pa.string())


def days_of(column: pa.Array) -> pa.Array:
    """Seconds since 1970 at the begin of each day, null for none, from dates, times or text that begins with 2026-01-31."""
    written = pc.utf8_slice_codeunits(_texts(column), 0, len("2026-01-31"))
    return pc.strptime(written, format="%Y-%m-%d", unit="s", error_is_null=True)


def chains_of(batch: ColumnBatch, default: int) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.bool_]]:
    """The chain of each row, the default where the table has no column ``chain``, and which rows have one."""
    if "chain" not in batch.columns:
        return np.full(batch.rows, default, np.uint64), np.ones(batch.rows, np.bool_)
    chains, is_chain = integers_of(batch.columns["chain"])
    return chains, is_chain & (chains > 0)


class BadRows:
    """Counts the rows of an input that cannot be read, by what is wrong with them, and keeps the first of each."""

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, int]] = {}

    def add(self, what: str, batch: ColumnBatch, is_good: npt.NDArray[np.bool_], done: str = "not read: ") -> None:
        """Count the rows that are not good, and what was ``done`` with them."""
        bad = np.flatnonzero(~is_good)
        if len(bad):
            count, first = self._found.get(done + what, (0, batch.first + int(bad[0])))
            self._found[done + what] = count + len(bad), first

    def sentences(self) -> list[str]:
        return [
            f"{counted(count, 'row')} {'was' if count == 1 else 'were'} {what}; the first is row {first:,}"
            for what, (count, first) in self._found.items()
        ]
