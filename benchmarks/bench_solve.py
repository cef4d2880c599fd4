"""The solver: candidates a second beside the hash kernel, and what it finds of texts that are taken out of the directory."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import ROOT, Figure
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options as ImportOptions
from sigdir.pipeline.run import run_import
from sigdir.pipeline.solve import SolveOptions, SolveReport, solve_hashes
from sigdir.pipeline.warehouse_directory import WarehouseDirectory
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.bytecode import BadBytecode, analyse, bytes_of_hex
from sigdir.signatures.candidates import pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import SIGNATURES, Collection
from sigdir.signatures.dispatcher import functions_of
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.keccak_rows import digests_of
from sigdir.signatures.solve import Targets
from sigdir.warehouse.index.view import Reader
from sigdir.warehouse.table.paths import existing

_TEXTS = 1000
_NAMES, _LISTS = 100_000, 16
_SURE = 0.9
_NEW_NAMES = 4_000_000
PACKAGES = ROOT / "tests" / "clients" / "node_modules"
"""Compiled contracts, where `npm install --prefix tests/clients` has put them."""


class _Without(WarehouseDirectory):
    """A directory in which some texts were never seen."""

    def __init__(self, folder: Path, left_out: set[str]) -> None:
        super().__init__(Reader(existing(folder)))
        self._left_out = pa.array(sorted(left_out))

    def texts(self, collection: Collection) -> Iterator[pa.StringArray]:
        for texts in super().texts(collection):
            yield texts.filter(pc.invert(pc.is_in(texts, value_set=self._left_out)))


def figures(rounds: int, corpora: Path | None, folder: Path) -> list[Figure]:
    """``folder`` gets a warehouse of the corpora, without which only the speed is measured."""
    found = [_speed(rounds)]
    if corpora is not None:
        warehouse = folder / "solved"
        if not warehouse.exists():
            inputs = [str(corpora / name) for name in ("4byte.json.gz", "openchain-export.csv.gz", "abi_dump.jsonl.xz")]
            run_import(ImportOptions(inputs, warehouse), Reporter())
        found += _found(warehouse, dict(_compiled(corpora / "artifacts", PACKAGES)))
    return found


def _speed(rounds: int) -> Figure:
    names = pa.array([f"someName{number}" for number in range(_NAMES)])
    lists = pa.array([f"({'uint256,' * (number % 4)}address)" for number in range(_LISTS)])
    lists = lists.take(pa.array(np.argsort(pc.binary_length(lists).to_numpy(), kind="stable")))
    targets = Targets([keccak256(b"someName7(address)")[:4]])
    texts = pc.binary_join_element_wise(names, "(uint256,address)", "")
    offsets, data = np.frombuffer(texts.buffers()[1], np.int32), np.frombuffer(texts.buffers()[2], np.uint8)
    out = np.empty((_NAMES, 4), np.uint64)
    assert [hash for hash, *_ in targets.search(names, lists)].count(keccak256(b"someName7(address)")[:4]) == 4
    digests_of(data, offsets, out)
    ours = theirs = float("inf")
    for _ in range(max(rounds, 3)):
        began = time.process_time()
        targets.search(names, lists)
        ours = min(ours, (time.process_time() - began) / (_NAMES * _LISTS))
        began = time.process_time()
        digests_of(data, offsets, out)
        theirs = min(theirs, (time.process_time() - began) / _NAMES)
    return Figure("solve speed", theirs / ours, [1 / ours], [1 / theirs])


def _compiled(*folders: Path) -> Iterator[tuple[str, str | None]]:
    """The functions of artifacts that their runtime code has: the text, and the arguments that the code shows."""
    for path in sorted(path for folder in folders for path in folder.rglob("*.json")):
        try:
            document = json.loads(path.read_bytes())
            code = document["deployedBytecode"]
            runtime, *_ = bytes_of_hex(code if isinstance(code, str) else code["object"])
            texts = {keccak256(text.encode())[:4]: text for text in _functions(document["abi"])}
        except (ValueError, KeyError, TypeError, BadBytecode):
            continue
        for function in functions_of(analyse(runtime).code):
            if function.selector in texts:
                yield texts[function.selector], function.arguments


def _functions(abi: list[dict[str, object]]) -> Iterator[str]:
    for candidates in pack(abi_entries([item for item in abi if item["type"] == "function"]), 0):
        rows = canonicalise(candidates).accepted.get(SIGNATURES)
        yield from rows.text.to_pylist() if rows is not None else ()


def _found(warehouse: Path, compiled: dict[str, str | None]) -> list[Figure]:
    chosen = random.Random(1).sample(sorted(compiled), min(_TEXTS, len(compiled)))
    directory = _Without(warehouse, set(chosen))
    wanted = {keccak256(text.encode())[: SIGNATURES.hash_bytes]: compiled[text] for text in chosen}
    report = solve_hashes(directory.texts, SolveOptions(wanted, pairs=_NEW_NAMES, threads=2), Reporter())
    directory.close()
    return _judged(report, chosen)


def _judged(report: SolveReport, chosen: list[str]) -> list[Figure]:
    """How many texts were found and how many of the sure ones are right, each hash by its best text."""
    truth = {f"0x{keccak256(text.encode())[:4].hex()}": text for text in chosen}
    best = {one.hash: one for one in reversed(report.solutions)}
    right = sum(one.text == truth[one.hash] for one in best.values())
    sure = [one.text == truth[one.hash] for one in best.values() if one.posterior > _SURE]
    recall, precision = right / len(chosen), sum(sure) / max(len(sure), 1)
    return [
        Figure("solve recall", 100 * recall),
        Figure("solve precision", 100 * precision),
        Figure("solve seconds", report.seconds / len(chosen)),
    ]
