"""An import by an engine's tasks leaves the warehouse that the local import leaves: rows, ids, evidence, rejects, history."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

import sigdir
from sigdir.cli.spark_session import open_session
from sigdir.pipeline import engine, source
from sigdir.pipeline.engine import RunFiles
from sigdir.pipeline.errors import BadInput
from sigdir.pipeline.report import ImportReport
from sigdir.pipeline.run import Options
from sigdir.signatures.collections import EVENT_SIGNATURES, SIGNATURES
from sigdir.warehouse.log.manifest import history
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.table.paths import Paths
from sigdir.warehouse.table.places import working_copy
from sigdir.warehouse.table.stores import StoreError, open_store
from sigdir.warehouse.transfer.working_copy import pull
from tests.conftest import ROOT, command_line, environment, import_files
from tests.faulty_store import BUCKET, S3, Fault
from tests.pipeline.support import invoke, keccak256, parquet_bytes, write_files
from tests.pipeline.test_containers import tarred, zipped
from tests.pipeline.test_sourcify import LOGGED, SENT, SET, compiled, signatures
from tests.serve.support import until
from tests.torture.stores import sail_server
from tests.warehouse.support import assert_clean, stage

pytestmark = pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning")

_LINES = 20_000  # some blocks of every shape
_SMALL_BLOCK = 1 << 16

SAMPLES = Path(sigdir.__file__).parent / "samples"


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    pytest.importorskip("pysail")
    with open_session(None) as session:
        yield session


def by_engine(session: Any, paths: Iterable[Path | str], warehouse: Path, **options: Any) -> ImportReport:
    return engine.run(session, Options([str(path) for path in paths], warehouse, **options))


@pytest.fixture(autouse=True)
def _small_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks read the smallest inputs too."""
    monkeypatch.setattr(engine, "SMALL_BYTES", 0)


@pytest.fixture
def small_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits of one block, of a 32nd of its size."""
    monkeypatch.setattr(engine, "SPLIT_BLOCKS", 1)
    for module in (engine, source):
        monkeypatch.setattr(module, "BLOCK_BYTES", _SMALL_BLOCK)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory, s3_running: S3) -> Iterator[tuple[Path, str]]:
    """The folder of executors that work elsewhere, with a folder for temporary files, and the URL of their master."""
    pytest.importorskip("pysail")
    folder = tmp_path_factory.mktemp("executor")
    (folder / "tmp").mkdir()
    environ = s3_running.variables | {"TMPDIR": str(folder / "tmp")}
    with sail_server(folder.with_name("sail.stderr"), None, folder, environ) as (_, master):
        yield folder, master


CONTENTS = {
    "signatures": "SELECT id, text_signature, hash, import_id FROM signatures ORDER BY created_at",
    "events": "SELECT id, text_signature, hash, import_id FROM event_signatures ORDER BY created_at",
    "sightings": "SELECT * FROM sightings ORDER BY ALL",
    "rejects": "SELECT * FROM rejects ORDER BY ALL",
    "history": "SELECT * EXCLUDE (committed_at, seconds) FROM imports ORDER BY import_id",
}


def contents(warehouse: Path) -> dict[str, Any]:
    """All that an import leaves, without times and names of runs."""
    opened = sigdir.open(warehouse)
    found: dict[str, Any] = {name: opened.sql(query).rows() for name, query in CONTENTS.items()}
    found["rejects_sha256"] = [entry.get("rejects_sha256") for entry in history(Paths(warehouse))]  # in their order
    found["sources"] = {
        source.label: (source.number, source.sightings, source.digest)
        for source in read_snapshot(Paths(warehouse)).evidence.sources.values()
    }
    return found


def told(report: ImportReport) -> dict[str, Any]:
    """What an import reports, without times."""
    return {k: v for k, v in report.to_dict().items() if k not in ("seconds", "stages", "rows_per_second")}


def assert_same(session: Any, paths: list[Path], folder: Path, times: int, **options: Any) -> ImportReport:
    """Import by threads and by tasks, so many times each, and compare everything."""
    local, engine = folder / "local", folder / "engine"
    for _ in range(times):
        expected = import_files(paths, local, **options)
        found = by_engine(session, paths, engine, **options)
        assert told(found) == told(expected)
        if not options.get("dry_run"):
            assert contents(engine) == contents(local)
            assert_clean(Paths(engine))
    return found


def lines(count: int, first: int = 0) -> Iterator[str]:
    """Canonical texts, declarations, duplicates and rejects, and long ones that blocks cut."""
    for number in range(first, first + count):
        match number % 1000:
            case 3:
                yield f"function spelled{number}(uint amount) external returns (bool)"
            case 4:
                yield "transfer(address,uint256)"
            case 5:
                yield f"broken{number}((uint256)"
            case 6:
                yield f"event Seen{number}(uint256 indexed value)"
            case _:
                yield f"text{number}_{'x' * (number % 50)}(uint256,address)"


@pytest.mark.long
@pytest.mark.usefixtures("small_splits")
def test_text_in_splits(session: Any, tmp_path: Path, s3: S3) -> None:
    """Ranges of a text with a byte order mark, comments, CRLF and a line longer than two blocks give the same rows.

    So do ranges of an object in a store, which is read once as a whole, for its sha256. Parquet is read as a whole, and
    an object that cannot be opened is a fault.
    """
    head = "\ufeff# a list\r\n/* a comment\nover lines */ first(uint256)\n"
    long = "y" * (2 * _SMALL_BLOCK + 77) + "(uint256)"
    text = head + "\n".join([*lines(1_000), long, *lines(1_000, 1_000)])
    assert len(text) > 3.2 * _SMALL_BLOCK, "one cut has to be beside the long line"
    texts = [f"text{number}_{'x' * (number % 50)}(uint256,address)x" for number in range(2_000)]
    files: dict[str, str | bytes] = {
        "a.txt": text,
        "c.parquet": parquet_bytes({"text_signature": texts}, row_group_size=1_000, compression=None),
    }
    write_files(tmp_path / "in", files)
    report = assert_same(session, [tmp_path / "in"], tmp_path, times=1)
    assert report.files[0].rejected == 2 + 1  # one of each thousand lines, and the long one
    store = open_store(f"s3://{BUCKET}/{tmp_path.name}/in")
    for name in files:
        store.put(name, tmp_path / "in" / name)
    by_engine(session, [store.url], tmp_path / "store")
    for name in files:
        ranges = sum(path.endswith(name) for path in s3.ranges)
        assert name == "c.parquet" or ranges > 2
        assert sum(method == "GET" and path.endswith(name) for method, path in s3.requests) == ranges + 1
    expected, found = contents(tmp_path / "local"), contents(tmp_path / "store")
    for name in ("signatures", "events", "sightings"):
        assert found[name] == expected[name]
    few = open_store(f"s3://{BUCKET}/{tmp_path.name}/few")  # the large one cannot be opened, to be split
    few.put("c.parquet", tmp_path / "in" / "c.parquet")
    few.put("a.txt", *write_files(tmp_path, {"a.txt": "a()\n"}))
    s3.faults.append(Fault("404", "GET", "c.parquet"))
    broken = by_engine(session, [few.url], tmp_path / "broken")
    assert [fault.path for fault in broken.faults] == [f"{few.url}/c.parquet"]


@pytest.mark.long
@pytest.mark.usefixtures("small_splits")
def test_tables_in_splits(session: Any, tmp_path: Path) -> None:
    """CSV with and without a header, JSON lines, OpenChain's lines and Parquet are read by ranges.

    A text whose comment crosses a cut, and a CSV file whose quoted field does, are read as a whole.
    """
    texts = [f"text{number}_{'x' * (number % 50)}(uint256,address)" for number in range(_LINES)]
    selectors = [f"0x{keccak256(text)[:4].hex()}" for text in texts]
    pairs = list(zip(selectors, texts, strict=True))
    entry = {"type": "function", "inputs": [{"type": "uint256", "name": "amount"}], "outputs": []}
    quoted = [f"0x{keccak256(text)[:4].hex()},{text}" for text in (f"t{number}()" for number in range(40_000))]
    quoted[20_000] += ',"over\n' + "many lines\n" * 40_000 + '"'
    files: dict[str, str | bytes] = {
        "a.csv": "selector,name,extra\n" + "".join(f'{s},"{t}",{"z" * 20}\n' for s, t in pairs),
        "b.csv": "".join(f"{s}\t{t}\n" for s, t in pairs) + "0x12345678\tnope(uint256)\n",
        "c.jsonl": "".join(json.dumps({"id": 7, "text_signature": t, "hex_signature": s}) + "\n" for s, t in pairs),
        "d.txt": "".join(f"{s},{t}\n" for s, t in pairs),
        "e.jsonl": "".join(
            json.dumps({"selector": f"0x{keccak256(f'n{number}(uint256)')[:4].hex()}", "abi": entry | {"name": f"n{number}"}}) + "\n"
            for number in range(_LINES // 4)
        ),
        "f.parquet": parquet_bytes({"text_signature": [f"{t}x" for t in texts] * 3}, row_group_size=15_000, compression=None),
        "g.txt": "\n".join([*lines(10_000), "/* from here", *lines(_LINES, 10_000), "to here */", *lines(1000, 500_000)]),
        "h.csv": "selector,text_signature,note\n" + "\n".join(quoted),
    }  # fmt: skip
    report = assert_same(session, write_files(tmp_path / "in", files), tmp_path, times=2)
    formats = ["csv", "csv", "rows", "openchain", "panoramix", "parquet", "text", "csv"]
    assert [file.format for file in report.files] == formats
    assert 10_000 <= report.files[6].read <= 11_000


PROJECTS = {
    "a/src/Vault.sol": 'import "./Types.sol";\ncontract Vault { function open(Key calldata k) external {} }\n',
    "a/src/Types.sol": 'import {Id} from "lib/Ids.sol";\nstruct Key { Id id; address b; }\n',
    "a/remappings.txt": "lib/=../c/\nno remapping\n",
    "b/One.sol": 'import "twice/Two.sol";\ncontract One { function one(Two t) external {} }\n',
    "b/Two.sol": "event Two(uint256 indexed x);\nfunction broken(((;\n",
    "b/x/twice/Two.sol": "enum Two { A }\n",
    "c/Ids.sol": "type Id is uint96;\ncontract Ids { function id(Id i) external {} }\n",
    "d/Alone.sol": "contract Alone { function alone(Id i, uint8) external {} }\n",
    "e/Main.sol": 'import "twice/Two.sol";\ninterface Main { function main(Two t) external; }\n',
    "e/contracts/twice/Two.sol": "/* import './no.sol'; */ struct Two { bytes b; }\n",
    "f/y/twice/Two.sol": "struct Two { bool b; }\n",
    "g.vy": "@external\ndef deposit(amount: uint256):\n    pass\n",
}
"""Of two users' folders: a imports c by a remapping, e has its own Two, b could have any of those that its folder lacks."""


def shapes(folder: Path) -> list[Path]:
    """One of every shape that is read as a whole, some of it broken, skipped, packed or given twice."""
    abi = (Path(__file__).parent / "data" / "Token.json").read_text()
    source = (Path(__file__).parent / "data" / "Token.sol").read_text()
    members = {"one/list.txt": "inZip(uint256)\nagain(uint256)\n", "one/Other.sol": source, "notes.md": "no list"}
    files: dict[str, str | bytes] = {
        "a/list.txt": "again(uint256)\nfunction spelled(uint amount)\nbad((\nevent Posted(bool)\n",
        "a/packed.txt.gz": gzip.compress(b"packed(uint256)\n" * 3),
        "a/broken.txt.gz": gzip.compress(b"cut(uint256)\n" * 1000)[:40],
        "a/abi.json": abi,
        "a/tree/" + keccak256("named(uint256)")[:4].hex(): "named(uint256)",
        "a/tree/" + keccak256("other(uint256)")[:4].hex(): "other(uint256)",
        "a/.hidden": "hidden(uint256)",
        "a/what.bin": b"\0\1\2",
        "b.zip": zipped(members),
        "c.tar.gz": gzip.compress(tarred({"two/" + name: content for name, content in members.items()})),
        "d/h.zip": zipped({f"h/{name}": text for name, text in PROJECTS.items()}),
        **{f"d/{name}": text for name, text in PROJECTS.items()},
        "f/signatures.parquet": signatures([SET, LOGGED, SENT]),
        "f/compiled.parquet": compiled([(SET, "function"), (LOGGED, "event")]),
        "f/plain.parquet": parquet_bytes({"text_signature": ["plain(uint256)", None, "bad(("]}),
    }
    write_files(folder, files)
    return [folder / name for name in ("a", "b.zip", "c.tar.gz", "d", "d/b/x", "d/d", "f")]


@pytest.mark.parametrize(
    "options",
    [
        {"source": "one label"},
        pytest.param({}, marks=pytest.mark.long),
        pytest.param({"collection": EVENT_SIGNATURES}, marks=pytest.mark.long),
        pytest.param({"dry_run": True}, marks=pytest.mark.long),
    ],
)
def test_every_shape(session: Any, tmp_path: Path, options: dict[str, Any]) -> None:
    """Archives, packed files, documents, trees, sources and Sourcify's tables are as the local import reads them.

    What a Solidity import means is what it means there. Texts of the table and of staging keep their ids, and the
    import's sightings get them.
    """
    for folder in ("local", "engine"):
        import_files([SAMPLES / "erc-0020-token.txt"], tmp_path / folder)
        stage(Paths(tmp_path / folder), SIGNATURES, "plain(uint256)")
        stage(Paths(tmp_path / folder), EVENT_SIGNATURES, "Posted(bool)")
    report = assert_same(session, [*shapes(tmp_path / "in"), SAMPLES], tmp_path, times=2, **options)
    assert {"text", "json", "tree", "solidity", "vyper", "parquet"} <= {file.format for file in report.files}
    assert len(report.faults) == 1


@pytest.mark.long
def test_inputs_in_a_store(session: Any, tmp_path: Path) -> None:
    """Objects are read by tasks, each as a whole, whatever is in their names."""
    shapes(tmp_path / "in")
    strange = {"50%20off #1/a b%41?.txt": "strange(uint256)\n", "50%20off #1/a9059cbb": "x()"}
    write_files(tmp_path / "in" / "a", strange)
    names = ("a", "b.zip", "d/a", "f", "a/50%2520off%20%231/a%20b%2541%3F.txt")
    urls = [f"file://{tmp_path}/in/{name}" for name in names]
    assert told(import_files(urls, tmp_path / "local")) == told(by_engine(session, urls, tmp_path / "engine"))
    assert contents(tmp_path / "engine") == contents(tmp_path / "local")


def test_what_cannot_be_imported_is_named(session: Any, tmp_path: Path) -> None:
    """An input that the user names and that is broken ends the import with the sentence of the local one."""
    [broken] = write_files(tmp_path, {"broken.txt.gz": gzip.compress(b"cut(uint256)\n" * 1000)[:40]})
    with pytest.raises(BadInput) as expected:
        import_files([broken], tmp_path / "local")
    with pytest.raises(BadInput) as found:
        by_engine(session, [broken], tmp_path / "engine")
    assert str(found.value) == str(expected.value)
    with pytest.raises(BadInput, match="standard input"):
        by_engine(session, [Path("-")], tmp_path / "engine")


# The command.


def test_the_command_imports_by_sail(warehouse: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """`--engine spark` without a master needs nothing but the extra, and says nothing of its own."""
    pytest.importorskip("pysail")
    result = invoke(warehouse, "import", "--samples", "--engine", "spark", "--json", "--quiet")
    assert (result.status, result.stderr, capfd.readouterr()) == (0, "", ("", ""))
    import_files([SAMPLES], tmp_path / "local")
    assert contents(warehouse) == contents(tmp_path / "local")


SAME_NAME = "/proc/self/cwd/cache"
"""A folder that is another one for a process that began elsewhere, as on another machine."""


def far_process(*arguments: str, url: str, cwd: Path) -> subprocess.Popen[str]:
    """An import into a store by a driver of its own machine, whose folder is ``cwd``."""
    cwd.mkdir(exist_ok=True)
    environ = environment(cwd) | {"SIGDIR_STORE_CACHE": SAME_NAME, "PYTHONPATH": str(ROOT)}
    command = [*command_line(), "import", *arguments, "--warehouse", url, "--engine", "spark", "--quiet"]
    return subprocess.Popen(command, env=environ, cwd=cwd, stderr=subprocess.PIPE, text=True)


def pulled(url: str, folder: Path) -> Paths:
    """A working copy of a machine that had none."""
    copy = working_copy(url, folder)
    pull(copy)
    return copy


@pytest.mark.long
@pytest.mark.parametrize("imports", [("/a",), ("/a/list.txt", "", "--dry-run")])
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux's /proc")
def test_executors_without_a_shared_folder(
    tmp_path: Path, s3: S3, far: tuple[Path, str], imports: tuple[str, ...]
) -> None:
    """Executors elsewhere read inputs from a store, and a warehouse's files go through it: the rows, ids, evidence and
    rejects are those of a local import. Nothing of the run is left, neither in the store nor on the executors' machine.
    """
    executor, master = far
    lists, url = open_store(f"s3://{BUCKET}/far-{tmp_path.name}"), f"s3://{BUCKET}/{tmp_path.name}/far"
    shapes(tmp_path / "in")
    write_files(tmp_path / "in", {"a/list.txt": "\n".join(lines(5000)), "a/b/S.sol": "error No(uint a);\n"})
    write_files(tmp_path / "in" / "a", {"functions.txt": "only()\n" + "#" * 600_000})
    for file in (tmp_path / "in").rglob("*"):
        if file.is_file():
            lists.put(file.relative_to(tmp_path / "in").as_posix(), file)
    for name in imports:
        path, options = (lists.url, [name]) if name.startswith("-") else (lists.url + name, [])
        with far_process(path, *options, "--master", master, url=url, cwd=tmp_path / "driver") as driver:
            _, said = driver.communicate()
        assert driver.returncode == (0 if name.endswith("txt") else 1), said  # a file is broken
        if not options:
            import_files([path], tmp_path / "local")
    of_tasks = executor / "tmp" / f"sigdir-tasks-{os.getuid()}"  # it stays, empty
    assert list(executor.rglob("*")) == [executor / "tmp", of_tasks]
    assert contents(pulled(url, tmp_path / "copy").root) == contents(tmp_path / "local")
    assert [each.name for each in open_store(url).list("tmp")] == []


def test_relative_paths(tmp_path: Path, far: tuple[Path, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Executors work in another folder than the driver: inputs are found, and called as the user did."""
    shapes(tmp_path / "in")
    write_files(tmp_path / "in" / "a", {"wrong/a9059cbb": "notTransfer()"})
    monkeypatch.chdir(tmp_path)
    result = invoke(tmp_path / "engine", "import", "in/a", "--engine", "spark", "--master", far[1], "--quiet")
    assert result.status == 1, result.stderr  # a file is broken
    import_files(["in/a"], tmp_path / "local")
    assert contents(tmp_path / "engine") == contents(tmp_path / "local")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/cwd").exists(), reason="needs Linux's /proc")
def test_a_killed_driver_of_far_executors(tmp_path: Path, s3: S3, far: tuple[Path, str]) -> None:
    """What its run has in the store is removed by the next import of that machine."""
    lists, url = open_store(f"s3://{BUCKET}/far-{tmp_path.name}"), f"s3://{BUCKET}/{tmp_path.name}/far"
    lists.put("a.txt", *write_files(tmp_path, {"a.txt": "\n".join(lines(3000))}))
    with far_process(lists.url, "--master", far[1], url=url, cwd=tmp_path / "driver") as driver:
        until(lambda: bool(open_store(url).list("tmp")), "a task in the store")
        driver.kill()
    assert open_store(url).list("tmp") != []
    with far_process(lists.url, "--master", far[1], url=url, cwd=tmp_path / "driver") as driver:
        _, said = driver.communicate()
    assert driver.returncode == 0, said
    assert open_store(url).list("tmp") == []
    assert_clean(pulled(url, tmp_path / "copy"))


def test_a_task_that_others_wrote(tmp_path: Path) -> None:
    """Who may write into the bucket cannot have code run: a pickle without the run's code is refused."""
    driver, url = tmp_path / "driver", f"file://{tmp_path}/store"
    (tmp_path / "store").mkdir()
    ours, theirs = (RunFiles(driver, tmp_path / "w", "tmp/run", secret, url) for secret in (b"ours", b"theirs"))
    (driver / "1-read").mkdir(parents=True)
    ours.save("1-read/000000.task", driver / "1-read" / "file")
    assert ours.load("1-read/000000.task") == driver / "1-read" / "file"
    with ours.here() as there:
        assert there.load("1-read/000000.task") == there.folder / "1-read" / "file"
    with theirs.here() as there, pytest.raises(StoreError, match="not what this import has written"):
        there.load("1-read/000000.task")


@pytest.mark.long
def test_an_interrupted_import_leaves_nothing(warehouse: Path, tmp_path: Path) -> None:
    """SIGTERM while tasks run ends the command with status 130 and removes the run."""
    pytest.importorskip("pysail")
    [path] = write_files(tmp_path, {"a.txt": "\n".join(lines(300_000))})
    command = [*command_line(), "import", str(path), "--engine", "spark"]
    with subprocess.Popen(command, env=environment(warehouse), cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if line.startswith("read"))
        process.terminate()
        assert process.stderr.read().splitlines()[-1] == "interrupted: nothing was published"
    assert process.returncode == 130
    assert list(Paths(warehouse).tmp.iterdir()) == []


@pytest.mark.long
def test_a_process_without_a_main_file(tmp_path: Path) -> None:
    """`python -c` has a session too: pyspark takes it for its own doctests, and would end it.

    Before a session neither the command nor the tasks' code loads Spark, Sail or gRPC.
    """
    pytest.importorskip("pysail")
    code = (
        "import sys, sigdir.cli.import_, sigdir.pipeline.engine\n"
        "print([n for n in sys.modules if n.split('.')[0] in ('pyspark', 'pysail', 'grpc', 'py4j')])\n"
        "import warnings; warnings.simplefilter('ignore')\n"
        "from sigdir.cli.spark_session import open_session\n"
        "with open_session(None) as session: print(session.range(3).count())"
    )
    environ = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"} | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n3\n"), done.stderr


@pytest.mark.parametrize(
    ("missing", "arguments", "sentence"),
    [
        ("pysail", [], "signature-directory[sail]"),
        ("pyspark", ["--master", "sc://127.0.0.1:1"], "signature-directory[sail]"),
        ("py4j", ["--master", "local[2]"], "signature-directory[spark]"),
        ("", ["--master", "sc://127.0.0.1:1"], "does not answer"),
    ],
)
def test_a_missing_engine_is_said(
    warehouse: Path, missing: str, arguments: list[str], sentence: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the extra, Java or an answer the command ends in one sentence, and makes no warehouse."""
    if missing:
        monkeypatch.setitem(sys.modules, missing, None)
    result = invoke(warehouse, "import", "--samples", "--engine", "spark", *arguments)
    assert result.status == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert not warehouse.exists()


# PySpark, which needs Java.

PYSPARK = os.environ.get("SIGDIR_TEST_PYSPARK", "")
"""A Python with the package pyspark, which cannot be installed beside pyspark-client."""


@pytest.mark.skipif(
    shutil.which("java") is None or not PYSPARK,
    reason="PySpark needs Java, and a Python with pyspark that SIGDIR_TEST_PYSPARK names",
)
@pytest.mark.long
@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,1024]"])
def test_pyspark_gives_the_same(warehouse: Path, tmp_path: Path, master: str) -> None:
    """PySpark, in threads and in processes of its own, leaves the warehouse that the local import leaves."""
    paths = [*shapes(tmp_path / "in"), *write_files(tmp_path / "large", {"list.txt": "\n".join(lines(_LINES))})]
    command = [PYSPARK, "-m", "sigdir", "import", *map(str, paths), "--engine", "spark", "--master", master, "--quiet"]
    # pyspark has noted in this process's environment that it uses Spark Connect
    environ = {name: value for name, value in environment(warehouse).items() if not name.startswith("SPARK_")}
    environ["PYTHONPATH"] = str(ROOT)
    for _ in range(2):
        import_files(paths, tmp_path / "local")
        done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr  # a file is broken
        assert contents(warehouse) == contents(tmp_path / "local")
    assert_clean(Paths(warehouse))
