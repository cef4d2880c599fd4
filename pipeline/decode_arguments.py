"""The values of a row by the names of its parameters: JSON, or columns where a Parquet file is of one text.

The first batch decides. If all of its rows that were decoded have one text, `arguments` is a struct with a typed field
for each parameter, and null in later rows of other texts, whose `values` are there. Otherwise it is JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson
import pyarrow as pa

from sigdir.signatures.types import Type, parameter_types

ARGUMENTS = "arguments"
_Field = tuple[pa.DataType, Callable[[Any], Any]]


def argument_keys(names: Sequence[str], count: int) -> list[str]:
    """The keys of ``count`` values: the names, a number from 0 where there is none or it comes again; empty without names."""
    keys: dict[str, None] = {}
    for number in range(count):
        name = names[number] if number < len(names) else ""
        keys[name if name and name not in keys else str(number)] = None
    return list(keys) if any(names) else []


def arguments_json(keys: Sequence[str], values: Sequence[Any]) -> str | None:
    return orjson.dumps(dict(zip(keys, values, strict=True))).decode() if keys else None


class ArgumentColumns:
    """Puts typed fields in place of the JSON of one text."""

    def __init__(self, first: pa.RecordBatch) -> None:
        """``first`` is the first batch of results."""
        columns = (first.column(name).to_pylist() for name in ("text_signature", "values", ARGUMENTS))
        found = {text: arguments for text, values, arguments in zip(*columns, strict=True) if values is not None}
        self._text: str = next(iter(found)) if len(found) == 1 else ""
        self._fields: dict[str, _Field] = {}
        """Those of the one text by name; none where there are several texts or no names."""
        if (arguments := found.get(self._text)) is not None:
            self._fields = dict(zip(orjson.loads(arguments), map(_field, parameter_types(self._text)), strict=True))

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """The schema of the batches with the fields."""
        if not self._fields:
            return schema
        struct = pa.struct([(name, type) for name, (type, _) in self._fields.items()])
        return schema.set(schema.get_field_index(ARGUMENTS), pa.field(ARGUMENTS, struct))

    def typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if not self._fields:
            return batch
        schema, at = self.schema(batch.schema), batch.schema.get_field_index(ARGUMENTS)
        rows = zip(batch.column("text_signature").to_pylist(), batch.column(at).to_pylist(), strict=True)
        values = [self._row(arguments) if arguments and text == self._text else None for text, arguments in rows]
        columns = [*batch.columns[:at], pa.array(values, schema.field(at).type), *batch.columns[at + 1 :]]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _row(self, arguments: str) -> dict[str, Any]:
        found = orjson.loads(arguments)
        return {name: read(found[name]) for name, (_, read) in self._fields.items() if name in found}


def _field(type: Type) -> _Field:
    """The Arrow type of a parameter's values, and how a value of JSON becomes one."""
    if type.members is not None or type.element is not None:
        return pa.string(), lambda value: value if isinstance(value, str) else orjson.dumps(value).decode()
    if type.text == "bool":
        return pa.bool_(), _itself
    if type.text.startswith(("int", "uint")) and int(type.text.lstrip("uint")) <= 64:
        return pa.uint64() if type.text.startswith("u") else pa.int64(), int
    return pa.string(), _itself


def _itself(value: Any) -> Any:
    return value
