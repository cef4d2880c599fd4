"""The command line: what `sigdir --help` says, and which modules a command loads."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest
from click import Command as AnyCommand
from click import Context, Group, Option
from click.testing import CliRunner

from sigdir.cli.errors import Command
from sigdir.cli.main import main
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, empty_warehouse, environment, import_files, import_lines
from tests.pipeline.support import write_files
from tests.serve.support import opened
from tests.warehouse.support import publish

CONTEXT = Context(main)
COMMANDS = [command for name in main.list_commands(CONTEXT) if (command := main.get_command(CONTEXT, name))]


def test_help_has_the_first_sentence_of_each_command() -> None:
    """As click would find by loading every command. The table of the README has the same commands."""
    shown = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Commands:")[2].split())
    assert [command.name for command in COMMANDS] == main.list_commands(CONTEXT)
    for command in COMMANDS:
        assert f"{command.name} {command.get_short_help_str(limit=1000).rstrip('.')}" in shown
    table = re.findall(r"^\| (`sigdir .*?) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`sigdir ([a-z]+)", " ".join(table))) == sorted(main.list_commands(CONTEXT))


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_examples_statuses_and_the_one_mapping_of_errors(command: AnyCommand) -> None:
    """All of its options are explained too, and those of its subcommands; -q is short for --quiet."""
    parts = list(command.commands.values()) if isinstance(command, Group) else [command]
    options = [option for part in parts for option in part.params if isinstance(option, Option)]
    assert all(isinstance(part, Command) for part in parts)
    assert [option.name for option in options if not option.help] == []
    assert {tuple(option.opts) for option in options if "--quiet" in option.opts} <= {("-q", "--quiet")}
    text = inspect.cleandoc(command.help or "")
    assert "\n\nExit status: 0 " in text
    assert f"\n\n\b\nExamples:\n  sigdir {command.name}" in text


@pytest.mark.parametrize(("typed", "meant"), [("imprt", "import"), ("stat", "stats"), ("xyzzy", None)])
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: str, meant: str | None) -> None:
    """If one is like it; the status is 2."""
    done = CliRunner().invoke(main, [typed, "--json"])
    hint = f" Did you mean '{meant}'?" if meant else ""
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: No such command '{typed}'.{hint}")


COMPLETED = {
    "sigdir ver": "plain,verify", "sigdir import list": "file,list", "sigdir sql --file list": "file,list",
    "sigdir sql --output list": "file,list", "sigdir export csv list": "file,list",
    "sigdir decode --file list": "file,list", "sigdir decode --output list": "file,list",
}  # fmt: skip


def test_bash_completes_commands_and_names_of_files() -> None:
    """Bash itself completes files where the answer is `file`. The README sets it up."""
    for words, answer in COMPLETED.items():
        asked = {"_SIGDIR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
        assert CliRunner().invoke(main, env=asked, prog_name="sigdir").stdout == f"{answer}\n", words
    assert 'eval "$(_SIGDIR_COMPLETE=bash_source sigdir)"' in (ROOT / "README.md").read_text()


LOADED_BY = """
import sys
from sigdir.cli.main import main
for line in sys.argv[1:]:
    try: main(line.split("|"))
    except SystemExit as end: assert end.code == 0
print(*sys.modules, sep="\\n")
"""
OPENED = """
import sys
from pathlib import Path
from sigdir.serve.core.settings import Settings
from sigdir.serve.servers.startup import open_app
open_app(Settings(warehouse=Path(sys.argv[1])))
print(*sys.modules, sep="\\n")
"""
ENGINES = {"sigdir.pipeline", "numpy", "numba", "pyarrow", "duckdb", "falcon"}
NOT_FOR_A_QUERY = {
    "difflib", "numba", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "sigdir.signatures.rank",
    "sigdir.warehouse.sql.functions", "tarfile", "backports.zstd",
}  # fmt: skip
"""Most queries call no function, read no rejects and write no packed file. pyarrow loads pandas for a time with a zone."""
QUERIES = ["sql|SELECT count(*) FROM signatures", "sql|SELECT * FROM signatures"]
IMPORTS = [f"import|{{folder}}/{name}.txt|--source|{name}|--warehouse|{{folder}}/new" for name in "012"]
ENTRY = '{"selector": "0x771602f7", "abi": {"name": "add", "type": "function", "inputs": [{"type": "uint256"}, {"type": "uint256"}]}}'


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A warehouse whose index is built, and inputs beside it; of them the second has declarations and rejects."""
    folder = tmp_path_factory.mktemp("loaded")
    texts = (
        "f(uint256)\nevent Moved(uint256)\n",
        "f(uint256)\nfunction g(uint a)\nevent E(uint b)\nnot one(\n",
        f"{ENTRY}\n",
    )
    files = write_files(folder, {f"{number}.txt": text for number, text in enumerate(texts)})
    import_files(files[:1], folder / "warehouse")
    with opened(folder / "warehouse"):
        return folder / "warehouse"


@pytest.mark.parametrize(
    ("code", "arguments", "loaded", "others"),
    [
        pytest.param(LOADED_BY, ["--help"], "click", {*ENGINES, "sigdir.warehouse", "sigdir.serve"}, id="help"),
        pytest.param(LOADED_BY, ["serve|--help"], "sigdir.serve.servers.supervisor", ENGINES, id="serve"),
        pytest.param(OPENED, ["{warehouse}"], "sigdir.warehouse.index.view", {"duckdb", "pandas"}, id="worker"),
        pytest.param(LOADED_BY, QUERIES, "sigdir.warehouse.sql.engine", NOT_FOR_A_QUERY, id="sql"),
        pytest.param(
            LOADED_BY, [*IMPORTS, "sql|SELECT reasons FROM ranked"], "sigdir.pipeline.run", {"pandas"}, id="import"
        ),
    ],
)
def test_a_command_loads_only_what_it_needs(
    root: Path, code: str, arguments: list[str], loaded: str, others: set[str]
) -> None:
    """DuckDB and pandas would make a start a third longer. Help, and the parent process of a server, load no engine."""
    given = [argument.format(warehouse=root, folder=root.parent) for argument in arguments]
    command = [sys.executable, "-c", code, *given]
    done = subprocess.run(command, cwd=ROOT, env=environment(root), capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()
    assert loaded in modules
    assert not others.intersection(modules)


@pytest.mark.long
def test_many_small_versions_need_few_descriptors(warehouse: Path) -> None:
    """An import a day makes many small data files, with ten columns each. Shells allow 256 open files, or 1,024."""
    for day in range(8):
        publish(Paths(warehouse), [f"f{day}()"], [f"E{day}()"])
    lines = 'ulimit -n 64 && exec "$0" -m sigdir search f1'
    command = ["sh", "-c", lines, sys.executable]
    done = subprocess.run(command, cwd=ROOT, env=environment(warehouse), capture_output=True, check=False)
    assert (done.returncode, done.stdout.count(b"0x")) == (0, 1), done.stderr


# Modules in the folder where a command or program starts do not replace ours; tests/serve has the same for a server.


def test_the_console_script_runs_nothing_of_its_folder(tmp_path: Path, warehouse: Path) -> None:
    """Neither the command nor the engines that it loads."""
    import_lines(warehouse, "f()")
    (folder := tmp_path / "project").mkdir()
    for name in ("sigdir", "orjson", "click", "duckdb", "pipeline", "serve", "warehouse"):
        (folder / f"{name}.py").write_text(f"raise SystemExit({name!r})\n")
    command = [str(Path(sys.executable).with_name("sigdir")), "report", "report.html"]
    done = subprocess.run(command, cwd=folder, env=environment(warehouse), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_sigdir_is_imported_in_a_project_with_packages_of_the_same_names(tmp_path: Path, warehouse: Path) -> None:
    """A project's own ``pipeline`` stays its own, and sigdir never loads it."""
    empty_warehouse(warehouse)
    for name in ("pipeline", "serve", "warehouse", "tests"):
        (tmp_path / f"{name}.py").write_text(f"raise RuntimeError('{name} of the project')\n")
    program = """
import sys, sigdir, sigdir.pipeline.run, sigdir.serve.app
assert sigdir.open(sys.argv[1]).sql("SELECT 1").rows() == [(1,)]
try:
    import pipeline
except RuntimeError as error:
    print(error)
"""
    command = [sys.executable, "-c", program, str(warehouse)]
    done = subprocess.run(command, cwd=tmp_path, env=environment(warehouse), capture_output=True, check=False)
    assert (done.stdout, done.returncode) == (b"pipeline of the project\n", 0), done.stderr
