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
from tests.conftest import ROOT, environment, import_files
from tests.pipeline.support import write_files
from tests.serve.support import opened
from tests.warehouse.support import publish

CONTEXT = Context(main)


COMMANDS = [command for name in main.list_commands(CONTEXT) if (command := main.get_command(CONTEXT, name))]


def test_help_has_the_first_sentence_of_each_command() -> None:
    """As click would find by loading every command."""
    shown = " ".join(CliRunner().invoke(main, ["--help"]).stdout.partition("Commands:")[2].split())
    assert [command.name for command in COMMANDS] == main.list_commands(CONTEXT)
    for command in COMMANDS:
        assert f"{command.name} {command.get_short_help_str(limit=1000).rstrip('.')}" in shown


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command.name)
def test_each_command_has_examples_statuses_and_the_one_mapping_of_errors(command: AnyCommand) -> None:
    """All of its options are explained too, and those of its subcommands."""
    parts = list(command.commands.values()) if isinstance(command, Group) else [command]
    assert all(isinstance(part, Command) for part in parts)
    assert [
        option.name for part in parts for option in part.params if isinstance(option, Option) and not option.help
    ] == []
    text = inspect.cleandoc(command.help or "")
    assert "\n\nExit status: 0 " in text
    assert f"\n\n\b\nExamples:\n  sigdir {command.name}" in text


@pytest.mark.parametrize(("typed", "meant"), [("imprt", "import"), ("stat", "stats"), ("xyzzy", None)])
def test_a_mistyped_command_is_answered_with_the_one_that_was_meant(typed: str, meant: str | None) -> None:
    """If one is like it; the status is 2."""
    done = CliRunner().invoke(main, [typed, "--json"])
    hint = f" Did you mean '{meant}'?" if meant else ""
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (2, f"Error: No such command '{typed}'.{hint}")


def test_q_is_short_for_quiet() -> None:
    """In every command that has --quiet."""
    names = [option.opts for command in COMMANDS for option in command.params if "--quiet" in option.opts]
    assert names
    assert all(name == ["-q", "--quiet"] for name in names)


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ("sigdir ver", "plain,verify"), ("sigdir import list", "file,list"), ("sigdir sql --file list", "file,list"),
        ("sigdir sql --output list", "file,list"), ("sigdir export csv list", "file,list"),
        ("sigdir decode --file list", "file,list"), ("sigdir decode --output list", "file,list"),
    ],
)  # fmt: skip
def test_bash_completes_commands_and_names_of_files(words: str, answer: str) -> None:
    """Bash itself completes files where the answer is `file`. The README sets it up."""
    asked = {"_SIGDIR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = CliRunner().invoke(main, env=asked, prog_name="sigdir")
    assert done.stdout == f"{answer}\n"
    assert 'eval "$(_SIGDIR_COMPLETE=bash_source sigdir)"' in (ROOT / "README.md").read_text()


def test_the_readme_has_every_command() -> None:
    """In its table, and no other."""
    table = re.findall(r"^\| (`sigdir .*?) \| ", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`sigdir ([a-z]+)", " ".join(table))) == sorted(main.list_commands(CONTEXT))


ENGINES = {"sigdir.pipeline", "numpy", "numba", "pyarrow", "duckdb", "falcon"}


@pytest.mark.parametrize(
    ("arguments", "loaded", "others"),
    [([], "click", {"sigdir.warehouse", "sigdir.serve"}), (["serve"], "sigdir.serve.servers.supervisor", set[str]())],
)
def test_help_loads_no_engine(arguments: list[str], loaded: str, others: set[str]) -> None:
    """It takes a tenth of a second. So does the start of a server's parent process."""
    look = f"import sys\nfrom sigdir.cli.main import main\ntry: main([*{arguments}, '--help'])\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()
    assert loaded in modules
    assert not (ENGINES | others).intersection(modules)


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
NOT_FOR_A_QUERY = {
    "difflib", "numba", "pandas", "pyarrow.compute", "pyarrow.dataset", "pyarrow.parquet", "sigdir.signatures.rank",
    "sigdir.warehouse.sql.functions", "tarfile", "backports.zstd",
}  # fmt: skip
"""Most queries call no function, read no rejects and write no packed file. pyarrow loads pandas for a time with a zone."""
ENTRY = '{"selector": "0x771602f7", "abi": {"name": "add", "type": "function", "inputs": [{"type": "uint256", "name": "a"}, {"type": "uint256"}], "outputs": []}}'


@pytest.mark.parametrize(
    ("code", "arguments", "loaded", "others"),
    [
        (OPENED, ["{warehouse}"], "sigdir.warehouse.index.view", {"duckdb", "pandas"}),
        (LOADED_BY, ["stats"], "sigdir.warehouse.log.snapshot", {"duckdb", "pandas"}),
        (
            LOADED_BY,
            ["sql|SELECT count(*) FROM signatures", "sql|SELECT * FROM signatures"],
            "sigdir.warehouse.sql.engine",
            NOT_FOR_A_QUERY,
        ),
        (
            LOADED_BY,
            [f"import|{{folder}}/{name}.txt|--source|{name}|--warehouse|{{folder}}/new" for name in "012"],
            "sigdir.pipeline.run",
            {"pandas"},
        ),
    ],
    ids=["worker", "stats", "sql", "import"],
)
def test_a_command_loads_only_what_it_needs(
    tmp_path: Path, warehouse: Path, code: str, arguments: list[str], loaded: str, others: set[str]
) -> None:
    """DuckDB and pandas would make a start a third longer. The second import has declarations, rejects and another label."""
    texts = (
        "f(uint256)\nevent Moved(uint256)\n",
        "f(uint256)\nfunction g(uint a)\nevent E(uint b)\nnot one(\n",
        f"{ENTRY}\n",
    )
    files = write_files(tmp_path, {f"{number}.txt": text for number, text in enumerate(texts)})
    import_files(files[:1], warehouse)
    with opened(warehouse):
        pass  # the index is built
    given = [argument.format(warehouse=warehouse, folder=tmp_path) for argument in arguments]
    done = subprocess.run(
        [sys.executable, "-c", code, *given],
        cwd=ROOT,
        env=environment(warehouse),
        capture_output=True,
        text=True,
        check=True,
    )
    modules = done.stdout.splitlines()
    assert loaded in modules
    assert not others.intersection(modules)


def test_many_small_versions_need_few_descriptors(warehouse: Path) -> None:
    """An import a day makes many small data files, with ten columns each. Shells allow 256 open files, or 1,024."""
    for day in range(12):
        publish(Paths(warehouse), [f"f{day}()"], [f"E{day}()"])
    lines = 'ulimit -n 100 && exec "$0" -m sigdir search f1'
    command = ["sh", "-c", lines, sys.executable]
    done = subprocess.run(command, cwd=ROOT, env=environment(warehouse), capture_output=True, check=False)
    assert (done.returncode, done.stdout.count(b"0x")) == (0, 3), done.stderr
