"""What bounds a query: its time, the memory of its process, and the folder of what it spills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest

import sigdir
from sigdir.warehouse.log.snapshot import read_snapshot
from sigdir.warehouse.sql import engine
from sigdir.warehouse.sql.engine import Database, connect
from sigdir.warehouse.sql.views import create_derived_views
from sigdir.warehouse.table.files import RunFolder
from sigdir.warehouse.table.paths import Paths
from tests.conftest import SAFETY_SECONDS
from tests.examples import long_except
from tests.warehouse.support import REPOSITORY, call_command, command, environment, names, publish


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    paths = Paths(tmp_path_factory.mktemp("limits") / "warehouse")
    publish(paths, names("a", 10))
    return paths


def test_rivals_are_found_in_little_memory_and_before_the_time_of_a_query(tmp_path: Path) -> None:
    """Grouped by the engine, 10 M texts took more than the 256 MB of a stranger's query, and 1 M half of its second."""
    paths = Paths(tmp_path / "warehouse")
    publish(paths, names("a", 200_000))
    snapshot = read_snapshot(paths)
    database = Database(paths, snapshot, "12MB", threads=1, strangers=True)
    database.prepare("FROM collisions")
    for file in snapshot.all_files():
        file.path.unlink()  # so what is known now was read before
    assert database.sql("SELECT len(rivals(0))").rows() == [(10,)]


def test_a_query_loads_no_package_in_its_time(small: Paths) -> None:
    """The view of imports needs pandas, which takes half a second."""
    code = """if True:
        import sys
        from pathlib import Path
        from sigdir.warehouse.log.snapshot import read_snapshot
        from sigdir.warehouse.sql.engine import Database
        from sigdir.warehouse.sql.guard import STRANGERS_VIEWS
        from sigdir.warehouse.table.paths import Paths
        paths = Paths(Path(sys.argv[1]))
        database = Database(paths, read_snapshot(paths), strangers=True)
        database.prepare()
        before = set(sys.modules)
        for view in STRANGERS_VIEWS:
            database.sql(f"FROM {view}").arrow()
        print(*{module.partition(".")[0] for module in set(sys.modules) - before})
    """
    done = ended(code, str(small.root))
    assert (done.stdout, done.stderr) == ("\n", "")


def test_ctrl_c_while_views_are_created_leaves_them_all(small: Paths, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(connection: duckdb.DuckDBPyConnection) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        create_derived_views(connection)

    monkeypatch.setattr(engine, "create_derived_views", interrupted)
    warehouse = sigdir.open(small.root)
    with pytest.raises(KeyboardInterrupt):
        warehouse.sql("FROM ranked")
    assert len(warehouse.sql("FROM ranked").rows()) == 10


def test_a_query_ends_at_its_time_limit(small: Paths) -> None:
    """With status 2 and one line; a query that takes less is not touched."""
    endless = "SELECT count(*) FROM range(1000000000) a, range(1000000000) b WHERE a.range % 7 = b.range % 5"
    result = call_command("sql", "--timeout", "1s", endless, "--warehouse", small.root)
    assert (result.exit_code, result.stderr) == (2, "Error: the query was stopped after 1 second, its --timeout\n")
    result = call_command("sql", "--timeout", "1m", "SELECT 1 AS x", "--format", "csv", "--warehouse", small.root)
    assert (result.exit_code, result.stdout.split()) == (0, ["x", "1"])


def ended(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A Python process with these arguments."""
    return subprocess.run(
        [sys.executable, "-c", *arguments], cwd=REPOSITORY, env=environment(), capture_output=True, text=True,
        timeout=SAFETY_SECONDS, check=False,
    )  # fmt: skip


def test_a_query_that_does_not_hear_its_time_limit_ends_with_the_process() -> None:
    """After a grace, with the same line."""
    done = ended(
        "import time; from sigdir.warehouse.sql import time_limit; time_limit._GRACE_SECONDS = 0.1\n"
        "with time_limit.time_limit(lambda: None, 0.1, 'it took too long'): time.sleep(60)"
    )
    assert (done.returncode, done.stderr) == (2, "Error: it took too long\n")


# A process counts its parent's memory too: the fork had it. So a small process starts the command.
PEAK_MEMORY = """
import resource, subprocess, sys
ended = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(ended.returncode)
"""


RESULT, STATE = (
    "SELECT repeat('x', 1000000) AS x FROM range(20000)",
    "SELECT list(repeat('x', 100000) || range) FROM range(200000)",
)


@pytest.mark.parametrize("query", long_except({RESULT}, [RESULT, STATE]))
def test_a_query_has_the_memory_that_it_may_have(small: Paths, tmp_path: Path, query: str) -> None:
    """Its result counts too: one of 20 GB ended at 6 GB of memory, or with the machine."""
    output = tmp_path / "x.ndjson"
    arguments = command("sql", "--memory-limit", "256MB", "--output", output, query, "--warehouse", small.root)
    done = ended(PEAK_MEMORY, *arguments)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert done.stderr.startswith("Error: the query needs more memory than it may have")
    assert "--memory-limit" in done.stderr
    assert int(done.stdout) < 1200 * 1024


def test_what_a_killed_query_spilled_is_removed_by_the_next(
    small: Paths, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of a living one stays, and each removes its own."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"sigdir-sql-{os.getuid()}"
    dead = shared / "dead"
    dead.mkdir(parents=True)
    shared.chmod(0o700)
    (dead / "duckdb_temp_storage-0.tmp").write_bytes(b"x" * 1000)
    with RunFolder(shared) as living:
        with sigdir.open(small.root) as warehouse:
            assert warehouse.sql("SELECT 1").rows() == [(1,)]
            assert not dead.exists()
            assert living.path.exists()
            assert len(list(shared.iterdir())) == 2
        assert list(shared.iterdir()) == [living.path]


def test_a_folder_that_others_may_enter_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another user may have made it, to read what is spilled. The engine's progress bar is off: it would be in the output."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    shared = tmp_path / f"sigdir-sql-{os.getuid()}"
    shared.mkdir()
    shared.chmod(0o777)
    with connect("64MB", 1) as connection:
        assert list(shared.iterdir()) == []
        assert connection.execute("SELECT current_setting('enable_progress_bar')").fetchone() == (False,)
