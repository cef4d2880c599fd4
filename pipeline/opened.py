"""A warehouse that ``sigdir.open`` gives to Python: SQL, and imports from frames, Arrow data, files and texts."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from sigdir.warehouse import Warehouse, WarehouseError
from sigdir.warehouse.table.errors import first_line

if TYPE_CHECKING:
    import pyarrow as pa

    from sigdir.pipeline.report import ImportReport

_BATCH_ROWS = 1 << 16


class OpenWarehouse(Warehouse):
    """A ``Warehouse`` that imports, if it was opened with ``create=True``."""

    is_writable = False

    def add(
        self, data: Any, *, source: str | None = None, replace_source: bool = False, wait: bool = True
    ) -> ImportReport:
        """Import ``data`` as one new version, as `sigdir import` does, and move to it.

        ``data`` is the path of a file or a folder, a DataFrame or a column of pandas or polars, Arrow data, or texts
        (str or bytes, also from a generator). ``source`` is what evidence calls it; only a path may do without. With
        ``replace_source`` what the source said before does not count any more. Without ``wait`` Busy is raised while
        another process publishes.

        The report has ``totals()``, of which read is imported + duplicate + rejected. Raises BadInput, also for a table
        without a clear column of texts (call it `text_signature`), and WarehouseError; then nothing was published.
        """
        from sigdir.pipeline.progress import Reporter
        from sigdir.pipeline.run import Options, run_import  # with the compiled grammar, half a second
        from sigdir.pipeline.source import Source

        self._require_writable()
        is_path = isinstance(data, str | Path)
        if not is_path and not source:
            raise WarehouseError("data without a file needs the name of its source: add(data, source=...)")
        thresholds = gc.get_threshold()
        try:
            with TemporaryDirectory(prefix="sigdir-") as folder:
                name = str(data) if is_path else str(source)
                inputs = None if is_path else [Source(_written(data, Path(folder), name), True, name, below=name)]
                options = Options([name], self.paths.root, source=source, replace_source=replace_source, wait=wait)
                report = run_import(options, Reporter(), sources=inputs)
        finally:
            gc.set_threshold(*thresholds)  # an import changes those of its process
        self.refresh()
        return report

    def decode(
        self, data: str | bytes | Mapping[str, Any], *, abi: Any = None, code: str | bytes | None = None,
        chain: int | str | None = None, to: str | bytes | None = None, selector: str | bytes | None = None,
        texts: Sequence[str] | None = None,
    ) -> dict[str, Any]:  # fmt: skip
        """What data means by the newest version, as `POST /api/v1/decode/` answers it.

        ``data`` is bytes or hex digits, or the fields of that request, such as ``{"topics": [...], "data": ..., "anonymous":
        True}``; the others are more of them. With ``selector`` the data is what a call of it returned. In a field, too, bytes
        may stand for hex digits, as in a log of web3.py. Raises BadInput, and WarehouseError where an older version is open.
        """
        from sigdir.pipeline.directory import opened, readings_of
        from sigdir.signatures.decode_input import BadInput, inputs_of_fields
        from sigdir.signatures.given_contract import with_contract
        from sigdir.signatures.reading_json import document

        if self._as_of is not None:
            raise WarehouseError(f"{self.paths.root}: opened as of a version; SQL's decode_calldata reads by it")
        if not isinstance(data, str | bytes | Mapping):
            raise BadInput("bytes, hex digits, or the fields of a request, please")
        given = {"abi": abi, "code": code, "chain": chain, "to": to, "selector": selector, "texts": texts}
        given["as"] = None if selector is None else "return"
        fields = dict(data) if isinstance(data, Mapping) else {"data": data}
        fields |= {name: value for name, value in given.items() if value is not None}
        fields = {name: _with_digits(value) for name, value in fields.items()}
        with opened(self.paths.root) as directory:
            inputs = with_contract(inputs_of_fields(fields), fields, directory.contract)
            return document(readings_of(directory, inputs), inputs[0].contract)

    def _require_writable(self) -> None:
        """Raise WarehouseError where nothing can be imported."""
        if self._as_of is not None:
            raise WarehouseError(f"{self.paths.root}: opened as of a version; only the newest can be added to")
        if not self.is_writable:
            raise WarehouseError(f"{self.paths.root}: opened to be read; open it with create=True to import")
        if not os.access(self.paths.root, os.W_OK):
            raise WarehouseError(f"{self.paths.root}: the folder is read-only")


def _with_digits(value: Any) -> Any:
    """A value with hex digits in place of bytes, also in a list."""
    if isinstance(value, list | tuple):
        return list(map(_with_digits, value))
    return f"0x{bytes(value).hex()}" if isinstance(value, bytes) else value


def _written(data: Any, folder: Path, name: str) -> str:
    """Write a table or texts as a Parquet file, which is read like any other; returns its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from sigdir.pipeline.errors import BadInput

    path = folder / "data.parquet"
    try:
        if isinstance(data, pa.Array | pa.ChunkedArray):
            data = pa.table({"text_signature": data})
        elif hasattr(data, "to_frame"):  # a column of pandas or polars
            data = data.to_frame(name="text_signature")
        reader = _texts(data) if not hasattr(data, "__arrow_c_stream__") else pa.RecordBatchReader.from_stream(data)
        with pq.ParquetWriter(path, reader.schema, store_schema=False) as writer:
            for batch in reader:
                writer.write_batch(batch, row_group_size=_BATCH_ROWS)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadInput(name, f"not a table, texts or a path: {first_line(error)}") from error
    return str(path)


def _texts(data: Iterable[Any]) -> pa.RecordBatchReader:
    """Texts as a column. What is neither str nor bytes is null, which the reader rejects and counts."""
    import pyarrow as pa

    schema = pa.schema([("text_signature", pa.large_binary())])

    def batches() -> Iterator[pa.RecordBatch]:
        rows = iter(data)
        while some := list(islice(rows, _BATCH_ROWS)):
            values = [text.encode("utf-8", "surrogateescape") if isinstance(text, str) else text for text in some]
            column = pa.array([value if isinstance(value, bytes) else None for value in values], pa.large_binary())
            yield pa.record_batch([column], schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
