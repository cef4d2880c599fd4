"""Panoramix's ABI dump: JSON lines with a selector and one ABI entry.

The decompiler names an unknown function ``unknown<selector>``: a placeholder. Any other name that begins
with `unknown` is a real name.

A dump has millions of lines, and Python objects for each line are expensive: reading the real dump row by
row takes 10 s, its xz stream 1.8 s. So Arrow parses a block into columns and the texts are joined by column
(1.7 s in all). Only unusual lines are read one by one: tuples, broken lines, unknown types. ``entries`` reads
row by row; it is also the tests' oracle for the columns.

An entry has the ``outputs`` of a function where the dump took it from an ABI: it is declared. Where the decompiler
recovered a function, it took the name from a list, and the line counts as listed: its parameters are called
``_param1``, and its mutability is a guess. A line without a ``type`` does not say its kind. Arrow joins a declaration
from columns too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.hashes import parse_hash
from sigdir.pipeline.formats.json_reader import first_object, first_values, is_json, values_of
from sigdir.pipeline.source import Source
from sigdir.signatures import arrow
from sigdir.signatures.abi import abi_entry, has_no_selector, rejected_entry
from sigdir.signatures.candidates import Candidates, Entry, ReadTask, pack
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.evidence import LISTED, LISTED_EVENT, Kind, Sighting, SightingColumns, Sightings, Witness
from sigdir.signatures.grammar import OK, PLACEHOLDER
from sigdir.signatures.grammar_rows import normalise_rows
from sigdir.signatures.types import MAX_NAME_BYTES, NAME_PATTERN, RESERVED, one_type

Array = npt.NDArray[Any]

_PARAMETER = pa.struct([("type", pa.string()), ("indexed", pa.bool_()), ("name", pa.string())])
_SCHEMA = pa.schema(
    [
        ("selector", pa.string()),
        (
            "abi",
            pa.struct(
                [
                    ("name", pa.string()),
                    ("type", pa.string()),
                    ("anonymous", pa.bool_()),
                    ("inputs", pa.list_(_PARAMETER)),
                    ("outputs", pa.list_(_PARAMETER)),
                    ("stateMutability", pa.string()),
                    ("constant", pa.bool_()),
                    ("payable", pa.bool_()),
                ]
            ),
        ),
    ]
)
_SAMPLE, _SHOWN_CHARACTERS = 64, 300
_PARSE = pj.ParseOptions(explicit_schema=_SCHEMA, unexpected_field_behavior="ignore")


_WORDS = ["", "function", "event", "error"]
"""The ``type`` of an entry at the number of its ``Kind``."""
_OF_LIST = (LISTED, Sighting(Kind.FUNCTION), LISTED_EVENT, Sighting(Kind.ERROR))
"""What the line of a function that the decompiler recovered says."""
_BASES = (*_OF_LIST, *(Sighting(kind, Witness.DECLARED) for kind in Kind))
_OF_KIND = dict(zip(_WORDS, _OF_LIST, strict=True))


def looks_like(source: Source) -> bool:
    first = first_object(source) if is_json(source) else None
    return first is not None and "selector" in first and isinstance(first.get("abi"), dict)


def read(source: Source) -> Iterator[ReadTask]:
    """Raises BadInput, which shows the first object, for objects of something else."""
    found = [value for value in first_values(source, _SAMPLE) if isinstance(value, dict) and value]
    if found and all(value.keys().isdisjoint(_SCHEMA.names) for value in found):
        shown = rejected_entry(found[0], 1).text.decode()[:_SHOWN_CHARACTERS]
        raise BadInput(source.name, f"no JSON lines with selector and abi; the first object is {shown}")
    for block, first_line in source.blocks():
        yield partial(_read_block, block, first_line, source.number)


def _read_block(block: bytes, first_line: int, file: int) -> Iterable[Candidates]:
    columns = _parse(block)
    if columns is None:
        return pack(entries(enumerate(block.split(b"\n"), first_line)), file)
    return [_read_columns(columns, block, first_line, file)]


def entries(lines: Iterable[tuple[int, bytes]]) -> Iterator[Entry]:
    """The candidates of numbered lines, one by one."""
    for number, value in values_of((n, line.strip()) for n, line in lines):
        if isinstance(value, Entry):
            yield value
            continue
        try:
            item, selector = value["abi"], value["selector"]
            declared = parse_hash(selector)
            kind = item.get("type")
        except (TypeError, KeyError, AttributeError):
            yield rejected_entry(value, number)
            continue
        if declared is None:
            yield rejected_entry(value, number)
        elif not has_no_selector(kind):
            entry = abi_entry(item, number, declared)
            if not is_declared(item):
                entry = entry._replace(sighting=_OF_KIND.get(kind if isinstance(kind, str) else "", LISTED))
            if item.get("name") == "unknown" + selector[2:]:
                entry = entry._replace(reject_reason=PLACEHOLDER)
            yield entry


def is_declared(item: dict[str, Any]) -> bool:
    """Whether an entry is one of an ABI: events and errors are, and functions with what they return."""
    kind = item.get("type")
    return kind in ("event", "error") or (kind == "function" and isinstance(item.get("outputs"), list))


def _parse(block: bytes) -> pa.Table | None:
    """The block as columns; None if it is not one well-formed object per line.

    Arrow accepts more than JSON: two objects on a line, and invalid UTF-8 in fields that it skips. So
    each line must begin and end like an object, and the block must be UTF-8. Arrow also accepts NaN in
    skipped fields; this is not checked.
    """
    data = np.frombuffer(block.rstrip(), np.uint8)
    breaks = np.flatnonzero(data == 0x0A)
    lines = len(breaks) + 1
    last = data[breaks - 1]
    last = np.where(last == 0x0D, data[breaks - 2], last)
    if not (len(data) and data[0] == 0x7B and (data[breaks + 1] == 0x7B).all() and (last == 0x7D).all()):
        return None
    if data.max() >= 0x80 and not _is_utf8(block):
        return None
    options = pj.ReadOptions(use_threads=False, block_size=len(block) + 1)
    try:
        table = pj.read_json(pa.BufferReader(block), read_options=options, parse_options=_PARSE)
    except (pa.ArrowException, pa.ArrowNotImplementedError):
        return None
    return table.combine_chunks() if table.num_rows == lines else None


def _is_utf8(block: bytes) -> bool:
    try:
        block.decode()
    except UnicodeDecodeError:
        return False
    return True


def _read_columns(table: pa.Table, block: bytes, first_line: int, file: int) -> Candidates:
    selector = table["selector"].combine_chunks()
    name, kind, anonymous, inputs = (
        pc.struct_field(table["abi"], field).combine_chunks() for field in ("name", "type", "anonymous", "inputs")
    )
    is_event = _true(pc.equal(kind, arrow.text("event")))
    simple = _true(pc.match_substring_regex(selector, "^0x[0-9a-f]{8}$"))
    simple &= _true(pc.match_substring_regex(name, f"^{NAME_PATTERN}$"))
    simple &= _true(pc.is_in(kind, arrow.strings(["function", "event", "error", None])))
    simple &= _true(pc.is_valid(table["abi"].combine_chunks()))
    types, usual = _type_lists(inputs, is_event)
    simple &= usual
    declared = simple & _is_declared(table["abi"].combine_chunks(), kind)
    sightings, usual = _sightings(table["abi"].combine_chunks(), kind, declared)
    simple &= usual
    closing = pc.if_else(arrow.numbers(_true(anonymous)), arrow.text(") anonymous"), arrow.text(")"))
    text = _joined(name, "(", types, closing, null_handling="replace").filter(arrow.numbers(simple))
    offsets = np.frombuffer(text.buffers()[1], np.int32)[: len(text) + 1]
    placeholder = _true(pc.equal(name, _joined("unknown", pc.utf8_slice_codeunits(selector, 2))))
    numbers = np.flatnonzero(simple)
    ordinary = Candidates(
        np.frombuffer(text.buffers()[2] or b"", np.uint8), offsets[:-1], offsets[1:], first_line + numbers, file,
        np.where(is_event, EVENTS, FUNCTIONS).astype(np.uint8)[numbers],
        _decode_selectors(selector.filter(arrow.numbers(simple))), np.full(len(numbers), 4, np.uint8),
        np.where(placeholder, PLACEHOLDER, OK).astype(np.uint8)[numbers],
        Sightings(sightings.values, sightings.of_row[numbers]),
    )  # fmt: skip
    if simple.all():
        return ordinary
    unusual = entries(_lines(block, np.flatnonzero(~simple), first_line))
    return _in_line_order([ordinary, *pack(unusual, file)], file)


def _lines(block: bytes, rows: Array, first_line: int) -> Iterator[tuple[int, bytes]]:
    """Some lines of a block, numbered."""
    ends = np.append(np.flatnonzero(np.frombuffer(block, np.uint8) == 0x0A), len(block))
    for row in rows.tolist():
        start = int(ends[row - 1]) + 1 if row else 0
        yield first_line + row, block[start : int(ends[row])]


def _true(column: Any) -> npt.NDArray[np.bool_]:
    """A boolean column as flags; null is false."""
    flags: npt.NDArray[np.bool_] = arrow.values(column) & arrow.values(pc.is_valid(column))
    return flags


def _joined(*parts: Any, null_handling: str = "emit_null") -> pa.StringArray:
    """Columns and texts, joined by row."""
    columns = [arrow.text(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*columns, arrow.text(""), null_handling=null_handling)


def _is_declared(abi: pa.StructArray, kind: pa.StringArray) -> npt.NDArray[np.bool_]:
    """The columns of ``is_declared``."""
    has_outputs = pc.is_valid(pc.struct_field(abi, "outputs"))
    is_function = _true(pc.equal(kind, arrow.text("function"))) & _true(has_outputs)
    return is_function | _true(pc.is_in(kind, arrow.strings(["event", "error"])))


def _sightings(
    abi: pa.StructArray, kind: pa.StringArray, declared: npt.NDArray[np.bool_]
) -> tuple[Sightings, npt.NDArray[np.bool_]]:
    """What each row says, and a flag per row: whether its declaration can be joined from columns."""
    usual = np.ones(len(abi), np.bool_)
    codes = _filled(pc.index_in(kind, arrow.strings(_WORDS)), 0)
    of_row = codes.astype(np.int32)
    rows = np.flatnonzero(declared)
    if not len(rows):
        return Sightings(_BASES[: len(_OF_LIST)], of_row), usual
    mine = abi.filter(arrow.numbers(declared))
    is_event = codes[rows] == Kind.EVENT
    inputs, _ = _type_lists(pc.struct_field(mine, "inputs"), is_event, with_names=True)
    outputs, usual[rows] = _type_lists(pc.struct_field(mine, "outputs"), np.zeros(len(rows), np.bool_), with_names=True)
    empty = arrow.text("")
    returns = pc.if_else(pc.equal(outputs, empty), empty, _joined(" returns (", outputs, ")"))
    of_function = _joined(_mutabilities(mine), returns)
    of_event = pc.if_else(arrow.numbers(_true(pc.struct_field(mine, "anonymous"))), arrow.text(" anonymous"), empty)
    tails = pc.if_else(arrow.numbers(codes[rows] == Kind.FUNCTION), of_function, empty)
    tails = pc.if_else(arrow.numbers(is_event), of_event, tails)
    texts = _joined(
        kind.filter(arrow.numbers(declared)), " ", pc.struct_field(mine, "name"), "(", inputs, ")", tails
    )  # fmt: skip
    offsets = np.frombuffer(texts.buffers()[1], np.int32)[: len(rows) + 1]
    data = np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    kinds = codes[rows].astype(np.uint8)
    spelled = normalise_rows(data, offsets[:-1], offsets[1:], np.zeros(len(rows), np.uint8), stated=kinds)
    listed = len(_OF_LIST)
    of_row[rows] = np.arange(listed, listed + len(rows))
    base_of = np.concatenate([np.arange(listed), listed + spelled.kinds])
    declarations = pa.concat_arrays([pa.nulls(listed, pa.string()), spelled.declarations()])
    return Sightings(SightingColumns(_BASES, base_of, declarations), of_row), usual


def _mutabilities(abi: pa.StructArray) -> pa.StringArray:
    """The mutability of each function, with a space before."""
    written, constant, payable = (pc.struct_field(abi, field) for field in ("stateMutability", "constant", "payable"))
    old = np.where(_true(constant), 1, np.where(_true(payable), 2, 0))
    known = pc.is_in(written, arrow.strings(["view", "pure", "payable"]))
    mutability = pc.if_else(known, _joined(" ", written), arrow.text(""))
    old_words = arrow.strings(["", " view", " payable"]).take(arrow.numbers(old))
    return pc.if_else(pc.is_null(written), old_words, mutability)


def _type_lists(
    inputs: pa.ListArray, is_event: npt.NDArray[np.bool_], with_names: bool = False
) -> tuple[pa.StringArray, npt.NDArray[np.bool_]]:
    """The parameter lists joined by commas, and a flag per row: whether all its types are ordinary."""
    parameters = inputs.flatten()
    types = parameters.field("type").dictionary_encode()
    known = [kind is not None and _is_ordinary(kind) for kind in types.dictionary.to_pylist()]
    usual = np.array([*known, False], np.bool_)  # the last element stands for a missing type
    bad = ~usual[_filled(types.indices, len(known))]
    owners = arrow.values(pc.list_parent_indices(inputs))
    rows_usual = np.ones(len(inputs), np.bool_)
    rows_usual[owners[bad]] = False
    indexed = _true(parameters.field("indexed")) & is_event[owners]
    words = pc.fill_null(types.dictionary_decode(), arrow.text(""))
    if indexed.any():
        marks = pc.if_else(arrow.numbers(indexed), arrow.text(" indexed"), arrow.text(""))
        words = _joined(words, marks)
    if with_names:
        names = parameters.field("name").dictionary_encode()
        good = arrow.numbers(_are_parameter_names(names.dictionary))
        suffixes = pc.if_else(good, _joined(" ", names.dictionary), arrow.text(""))
        words = _joined(words, pc.fill_null(suffixes.take(names.indices), arrow.text("")))
    lists = pa.ListArray.from_arrays(_dense_offsets(inputs), words)
    return pc.binary_join(lists, arrow.text(",")), rows_usual


def _are_parameter_names(names: pa.StringArray) -> npt.NDArray[np.bool_]:
    """The columns of ``is_parameter_name``."""
    reserved = _true(pc.is_in(names, arrow.strings(sorted(RESERVED))))
    is_short = arrow.values(pc.binary_length(names)) <= MAX_NAME_BYTES
    return _true(pc.match_substring_regex(names, f"^{NAME_PATTERN}$")) & is_short & ~reserved


def _dense_offsets(lists: pa.ListArray) -> pa.Array:
    """Offsets into the flattened values; null lists are empty."""
    lengths = _filled(pc.list_value_length(lists), 0)
    return arrow.numbers(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32))


def _filled(numbers: pa.Array, null: int) -> Array:
    """Integers, ``null`` for a null."""
    return np.where(arrow.values(numbers.is_valid()), arrow.values(numbers), null)


def _is_ordinary(kind: str) -> bool:
    if kind.startswith("tuple"):
        return False
    try:
        one_type(kind)
    except ValueError:
        return False
    return True


def _decode_selectors(selectors: pa.StringArray) -> Array:
    """Selectors of 0x and eight digits as bytes, uint8 of (rows, 32) filled from the left."""
    digits = "".join(pc.utf8_slice_codeunits(selectors, 2).to_pylist())
    declared = np.zeros((len(selectors), 32), np.uint8)
    declared[:, :4] = np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 4)
    return declared


def _in_line_order(batches: list[Candidates], file: int) -> Candidates:
    """The batches as one, sorted by line."""
    lines = np.concatenate([batch.lines for batch in batches])
    order = np.argsort(lines, kind="stable")
    bases = np.cumsum([0, *(len(batch.data) for batch in batches)])[:-1].tolist()

    def column(parts: list[Array]) -> Array:
        joined: Array = np.concatenate(parts)[order]
        return joined

    def optional(name: str, *width: int) -> Array:
        parts = [getattr(batch, name) for batch in batches]
        zeros = [np.zeros((len(batch), *width), np.uint8) for batch in batches]
        return column([zero if part is None else part for part, zero in zip(parts, zeros, strict=True)])

    return Candidates(
        data=np.concatenate([batch.data for batch in batches]),
        starts=column([batch.starts + base for batch, base in zip(batches, bases, strict=True)]).astype(np.int32),
        ends=column([batch.ends + base for batch, base in zip(batches, bases, strict=True)]).astype(np.int32),
        lines=lines[order],
        file=file,
        declared_kinds=optional("declared_kinds"),
        declared_hashes=optional("declared_hashes", 32),
        declared_hash_bytes=optional("declared_hash_bytes"),
        reject_reasons=optional("reject_reasons"),
        sightings=Sightings.joined(order, [(batch.sightings, len(batch)) for batch in batches]),
    )
