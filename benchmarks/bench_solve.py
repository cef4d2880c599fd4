"""The solver: candidates a second beside the hash kernel, and what it finds of texts that are taken out of the directory."""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from benchmarks.measure import ROOT, Figure
from sigdir.pipeline.progress import Reporter
from sigdir.pipeline.run import Options as ImportOptions
from sigdir.pipeline.run import run_import
from sigdir.pipeline.solve import SolveOptions, solve_hashes
from sigdir.pipeline.warehouse_directory import WarehouseDirectory
from sigdir.signatures.abi import abi_entries
from sigdir.signatures.bytecode import BadBytecode, analyse, bytes_of_hex, functions_of
from sigdir.signatures.candidates import pack
from sigdir.signatures.canonicalise import canonicalise
from sigdir.signatures.collections import SIGNATURES, Collection
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
_LATER = {
    "@openzeppelin/contracts-5.4.0": ("@openzeppelin/contracts-3.4.2", "@openzeppelin/contracts-4.8.0"),
    "@safe-global/safe-smart-account": ("@safe-global/safe-contracts",),
    "@uniswap/v4-core": (),
}
"""Releases that came after the lists, and earlier ones of the same project."""
_TESTS = re.compile(r"test|mock|\.t\.sol", re.IGNORECASE)


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
        compiled = dict(_compiled(corpora / "artifacts", PACKAGES))
        some = random.Random(1).sample(sorted(compiled), min(_TEXTS, len(compiled)))
        found += _found(
            warehouse, {text: compiled[text] for text in some}, ("solve recall", "solve precision", "solve seconds")
        )
        found += _found(warehouse, _later(warehouse), ("solve later", "solve later precision"))
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


def _compiled(*folders: Path, skip: re.Pattern[str] | None = None) -> Iterator[tuple[str, str | None]]:
    """The functions of artifacts that their runtime code has: the text, and the arguments that the code shows.

    Files whose path below their folder has ``skip`` are left out.
    """
    for root, path in sorted((folder, path) for folder in folders for path in folder.rglob("*.json")):
        if skip is not None and skip.search(str(path.relative_to(root))):
            continue
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


def _later(warehouse: Path) -> dict[str, str | None]:
    """The functions of releases that came after the lists, which neither an earlier release, nor a list, nor a test has.

    The lists have no days. But they have all 114 functions of OpenZeppelin 3.4.2 and 15 of the 16 that 4.8.0 added in
    November 2022, and lack `eip712Domain()`, which came with 4.9 in May 2023: their last texts are of the time between.
    """
    found: dict[str, str | None] = {}
    for later, earlier in _LATER.items():
        before = dict(_compiled(*(PACKAGES / one for one in earlier)))
        found |= {text: shown for text, shown in _compiled(PACKAGES / later, skip=_TESTS) if text not in before}
    with closing(WarehouseDirectory.of(warehouse)) as directory:
        lists = pa.chunked_array(directory.texts(SIGNATURES))
    listed = pc.is_in(pa.array(list(found)), value_set=lists).to_pylist()
    return {text: shown for (text, shown), is_listed in zip(found.items(), listed, strict=True) if not is_listed}


def _found(warehouse: Path, chosen: dict[str, str | None], goals: tuple[str, ...]) -> list[Figure]:
    """Texts are looked for once they are taken out of the directory; each hash counts by its best text.

    The figures are how many are found, how many of the sure ones are right, and the seconds for each.
    """
    directory = _Without(warehouse, set(chosen))
    hashes = {keccak256(text.encode())[: SIGNATURES.hash_bytes]: text for text in chosen}
    wanted = {hash: chosen[text] for hash, text in hashes.items()}
    report = solve_hashes(directory.texts, SolveOptions(wanted, pairs=_NEW_NAMES, threads=2), Reporter())
    directory.close()
    best = {one.hash: one for one in reversed(report.solutions)}
    is_right = {one.hash: one.text == hashes[bytes.fromhex(one.hash[2:])] for one in best.values()}
    sure = [is_right[one.hash] for one in best.values() if one.posterior > _SURE]
    print(f"{sum(is_right.values())} of {len(chosen)} found, {sum(sure)} of {len(sure)} sure ones right")
    recall, precision = sum(is_right.values()) / len(chosen), sum(sure) / max(len(sure), 1)
    values = (100 * recall, 100 * precision, report.seconds / len(chosen))
    return [Figure(goal, value) for goal, value in zip(goals, values, strict=False)]
