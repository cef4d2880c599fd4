"""Declarations by selector and topic, as the tables have them that glaciers and programs over cryo's files decode with.

A hash has one row, because a join would else give a log twice: its best text by rank, where that does not look mined.
Events without a declaration stay out, because nobody knows which of their parameters are indexed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import BinaryIO

import pyarrow as pa

from sigdir.pipeline.export_dataset import write_parquet
from sigdir.pipeline.progress import Reporter
from sigdir.signatures.collections import Collection
from sigdir.warehouse import Warehouse

ABIS = "abis"
"""The name of the format."""

SCHEMA = pa.schema(
    [
        ("address", pa.binary()), ("chain", pa.uint64()), ("hash", pa.binary()), ("full_signature", pa.string()),
        ("name", pa.string()), ("anonymous", pa.bool_()), ("state_mutability", pa.string()), ("id", pa.string()),
    ]
)  # fmt: skip
"""glaciers' columns, and the chain. A row is of a hash and of no single contract, so the address and the chain are null."""

_DECLARED = """
    WITH best AS (
        SELECT hash, hex_signature, text_signature, CASE WHEN declaration IS NULL AND collection = 'signatures'
            THEN 'function ' || text_signature ELSE declaration END AS declaration
        FROM ranked WHERE collection = ? AND position = 1 AND NOT looks_mined)
    SELECT NULL::BLOB AS address, NULL::UBIGINT AS chain, hash, declaration AS full_signature,
        split_part(text_signature, '(', 1) AS name,
        CASE WHEN starts_with(declaration, 'event ') THEN ends_with(declaration, ' anonymous') END AS anonymous,
        CASE WHEN starts_with(declaration, 'function ') THEN coalesce(nullif(
            regexp_extract(split_part(declaration, ' returns (', 1), ' (view|pure|payable)$', 1), ''), 'nonpayable')
            END AS state_mutability,
        hex_signature || ' - ' || declaration AS id
    FROM best WHERE starts_with(declaration, 'event ') OR starts_with(declaration, 'function ') ORDER BY hash"""


def write_abis(
    warehouse: Warehouse, collections: Sequence[Collection], out: BinaryIO, progress: Reporter
) -> dict[Collection, int]:
    """Write functions and events into one Parquet file; gives their number by collection."""
    progress.stage("abis", sum(map(warehouse.count, collections)))
    readers = ((one, warehouse.sql(_DECLARED, [one.value]).reader()) for one in collections)
    return write_parquet(SCHEMA, readers, out)
