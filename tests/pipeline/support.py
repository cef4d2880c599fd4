"""What the tests of the pipeline share: input files, commands in this process, rows of a warehouse."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import orjson
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from backports import zstd
from click.testing import CliRunner
from Crypto.Hash import keccak

from sigdir.cli.main import main
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.formats.registry import Format, Import
from sigdir.pipeline.source import Source
from sigdir.signatures.candidates import Candidates, ReadTask, Rows
from sigdir.signatures.canonicalise import BatchResult, canonicalise
from sigdir.signatures.collections import FUNCTIONS, SIGNATURES, Collection
from sigdir.signatures.evidence import Sighting
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql.engine import connect
from sigdir.warehouse.sql.scratch import ScratchTables
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.processes import Command
from tests.warehouse.support import table_of


def corpus(name: str) -> Path:
    """Real data next to the project, not part of it; skips the test if it is not there."""
    path = Path(__file__).parents[3] / "shared" / "corpora" / name
    if not path.exists():
        pytest.skip(f"no real data: {path} is not there")
    return path


COMPRESSORS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "zst": zstd.compress,
    "bz2": bz2.compress,
}


class CommandResult(NamedTuple):
    """How a command ended."""

    status: int
    stdout: bytes
    stderr: str


def invoke(warehouse: Path, *arguments: str | Path, stdin: bytes = b"") -> CommandResult:
    """Run ``sigdir`` in this process; raise an exception that the command does not handle."""
    words = [str(argument) for argument in arguments]
    handler = signal.getsignal(signal.SIGTERM)
    try:
        result = CliRunner().invoke(
            main, words, prog_name="sigdir", input=stdin, env={"SIGDIR_WAREHOUSE": str(warehouse)}
        )
    finally:
        signal.signal(signal.SIGTERM, handler)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return CommandResult(result.exit_code, result.stdout_bytes, result.stderr)


def run_watched(warehouse: Path, *arguments: str | Path, most: int) -> tuple[CommandResult, int]:
    """Run ``sigdir`` as a process; kill it if it has over ``most`` MiB resident or hangs. How it ended, and its peak."""
    out, error = (warehouse.with_name(name) for name in ("stdout", "stderr"))
    process = Command([str(argument) for argument in arguments], ROOT, environment(warehouse), out, error)
    peak, deadline = 0, time.monotonic() + SAFETY_SECONDS
    while process.poll() is None:
        peak = max(peak, peak_mib(process.pid))
        if peak > most or time.monotonic() > deadline:
            process.kill()
        time.sleep(0.01)
    return CommandResult(process.wait(), out.read_bytes(), error.read_text()), peak


def read_alone(format: Format, source: Source) -> Iterator[ReadTask]:
    """The candidates of an open input, as an import of it alone reads it."""
    if format.read is not None:
        return format.read(source)

    def refuse(_number: int, error: BadInput) -> None:
        raise error

    assert format.multi_source is not None
    job = Import([source.path], lambda: ScratchTables(connect("512MB", 1)), refuse)
    reader = format.multi_source(job)
    reader.add(source)
    return reader.read()


def canonicalised(tasks: Iterable[ReadTask], by: int = FUNCTIONS) -> Iterator[BatchResult]:
    """What becomes of the candidates that a reader yields, a result for each batch."""
    for task in tasks:
        for batch in [task] if isinstance(task, Candidates) else task():
            yield canonicalise(batch, by)


def texts_and_sightings(rows: Rows) -> list[tuple[str, Sighting | None]]:
    """The texts of rows and what their input says about each; None for a plain text of a list."""
    texts = rows.text.to_pylist()
    return list(zip(texts, [None] * len(texts) if rows.sightings is None else rows.sightings, strict=True))


def keccak256(text: str) -> bytes:
    """The 32-byte hash by pycryptodome, which shares no code with ours."""
    return keccak.new(digest_bits=256, data=text.encode()).digest()


def texts(warehouse: Path, collection: Collection = SIGNATURES) -> list[str]:
    """The texts of a collection in id order, without SQL, whose engine takes 40 ms to start."""
    rows = table_of(read_snapshot(Paths(warehouse)), collection).sort_by("id")
    found: list[str] = rows["text_signature"].to_pylist()
    return found


def write_files(folder: Path, files: Mapping[str, str | bytes]) -> list[Path]:
    """Write files below a folder; return their paths sorted by name."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return [folder / name for name in sorted(files)]


def write_table(path: Path, columns: Mapping[str, Sequence[Any]]) -> None:
    """Write a table of these columns in the format that the name says."""
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    content = io.BytesIO()
    if path.suffix == ".parquet":
        pq.write_table(pa.table(dict(columns)), content)
    elif path.suffix == ".csv":
        pyarrow.csv.write_csv(pa.table(dict(columns)), content)
    else:
        content.write(b"".join(orjson.dumps(row) + b"\n" for row in rows))
    path.write_bytes(gzip.compress(content.getvalue()) if path.suffix == ".gz" else content.getvalue())


def parquet_bytes(columns: Mapping[str, Any], **options: Any) -> bytes:
    """A Parquet file; ``options`` go to pyarrow's ``write_table``."""
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out, **options)
    return out.getvalue()


def peak_mib(pid: int) -> int:
    """Peak of the resident memory so far; 0 when the process is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) // 1024 for line in lines if line.startswith("VmHWM:")), 0)
