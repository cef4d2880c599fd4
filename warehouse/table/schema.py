"""The columns of data files, rejects files and evidence files, as Arrow has them."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from sigdir.warehouse.table.fields import STORED

_TYPES = {str(type): type for type in (pa.int64(), pa.timestamp("us", tz="UTC"), pa.string(), pa.binary())}

FILE_SCHEMA: Final = pa.schema([pa.field(field.name, _TYPES[field.type.arrow], nullable=False) for field in STORED])
"""A data file's columns."""

REJECT_SCHEMA: Final = pa.schema(
    [
        pa.field("collection", pa.string()),
        pa.field("text", pa.string()),
        pa.field("reason", pa.dictionary(pa.int8(), pa.string())),
        pa.field("position", pa.int32()),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("line", pa.int64()),
    ]
)
"""A rejects file. ``position`` is the column (from 1, in bytes of the text) where the problem
was found, 0 where the entry as a whole is wrong. ``line`` counts lines from 1, or entries where the
input has no lines (a JSON document, Parquet). Bytes that are not UTF-8 are written as ``\\xNN``."""

SIGHTING_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("source", pa.int32(), nullable=False),
        pa.field("import_id", pa.int64(), nullable=False),
        pa.field("kind", pa.int8(), nullable=False),
        pa.field("witness", pa.int8(), nullable=False),
        pa.field("contracts", pa.int32(), nullable=False),
        pa.field("verified", pa.bool_(), nullable=False),
        pa.field("file", pa.dictionary(pa.int32(), pa.string())),
        pa.field("contract", pa.dictionary(pa.int32(), pa.string())),
        pa.field("contract_key", pa.int64()),
        pa.field("display", pa.string()),
        pa.field("declaration", pa.string()),
    ]
)
"""An evidence file: a row a sighting. ``id`` is the text's id in the file's collection, ``source`` the source's number
in the manifest, ``import_id`` 0 for a POST. ``kind`` and ``witness`` are the numbers of ``signatures/evidence.py``.
``contracts`` is the source's own count of contracts that it does not name, ``file`` the input's name, null where it is
the source's label, ``contract_key`` the eight bytes of the contract's key as a number, ``display`` how a call is shown to whoever signs it,
as JSON. Declarations are plain: a
dictionary of a million of them is written again with each row group, which took half of an import's time."""
