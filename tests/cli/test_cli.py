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
from tests.conftest import ROOT, empty_warehouse, environment, import_files
from tests.pipeline.support import write_files
from tests.serve.support import opened

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
    "words",
    ["sigdir import list", "sigdir sql --file list", "sigdir sql --output list", "sigdir export csv list",
     "sigdir decode --file list", "sigdir decode --output list"],
)  # fmt: skip
def test_bash_completes_names_of_files(words: str) -> None:
    """Bash itself completes them where the answer is `file`."""
    asked = {"_SIGDIR_COMPLETE": "bash_complete", "COMP_WORDS": words, "COMP_CWORD": str(words.count(" "))}
    done = subprocess.run(
        [Path(sys.executable).with_name("sigdir")], cwd=ROOT, env=environment(ROOT) | asked, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "file,list\n"


def test_the_shell_completes_commands() -> None:
    """As the README sets it up."""
    words = {"_SIGDIR_COMPLETE": "bash_complete", "COMP_WORDS": "sigdir ver", "COMP_CWORD": "1"}
    done = subprocess.run(
        [Path(sys.executable).with_name("sigdir")], cwd=ROOT, env=environment(ROOT) | words, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,verify\n"
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


def test_a_worker_loads_neither_duckdb_nor_pandas(tmp_path: Path) -> None:
    """They would make its start a third longer. pyarrow loads pandas by itself in some calls."""
    lines = tmp_path / "lines.txt"
    lines.write_text("transfer(address,uint256)\nevent Moved(uint256)\n")
    import_files([lines], tmp_path / "warehouse")
    look = (
        "import sys; from pathlib import Path; from sigdir.serve.servers.startup import open_app; from sigdir.serve.core.settings import Settings\n"
        f"open_app(Settings(warehouse=Path({str(tmp_path / 'warehouse')!r}))); print(*sys.modules, sep='\\n')"
    )
    with opened(tmp_path / "warehouse"):
        pass  # the index is built
    done = subprocess.run([sys.executable, "-c", look], cwd=ROOT, capture_output=True, text=True, check=True)
    modules = done.stdout.splitlines()
    assert "sigdir.warehouse.index.view" in modules
    assert not {"duckdb", "pandas"}.intersection(modules)


def test_an_import_of_lines_or_of_a_dump_loads_no_pandas(tmp_path: Path) -> None:
    """It would take a quarter of a second. The second import has declarations, rejects and another label."""
    entry = '{"selector": "0x771602f7", "abi": {"name": "add", "type": "function", "inputs": [{"type": "uint256", "name": "a"}, {"type": "uint256"}], "outputs": []}}'
    look = (
        "import sys; from sigdir.cli.main import main\n"
        "for name in sys.argv[1:]:\n"
        "    try: main(['import', name, '--source', name])\n"
        "    except SystemExit as end: assert end.code == 0\n"
        "print(*sys.modules, sep='\\n')"
    )
    texts = ("f(uint256)\n", "f(uint256)\nfunction g(uint a)\nevent E(uint b)\nnot one(\n", f"{entry}\n")
    files = write_files(tmp_path / "in", {f"{number}.txt": text for number, text in enumerate(texts)})
    done = subprocess.run(
        [sys.executable, "-c", look, *files], cwd=ROOT, env=environment(tmp_path / "warehouse"),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    modules = done.stdout.splitlines()
    assert "sigdir.pipeline.run" in modules
    assert "pandas" not in modules


@pytest.mark.parametrize("columns", ["count(*)", "*"])
def test_a_query_loads_only_what_it_needs(tmp_path: Path, columns: str) -> None:
    """They took a fifth of its time: most queries call no function, read no rejects and write no packed file.

    pyarrow loads pandas for a time with a zone.
    """
    lines = tmp_path / "lines.txt"
    lines.write_text("transfer(address,uint256)\n")
    import_files([lines], tmp_path / "warehouse")
    look = (
        "import sys\nfrom sigdir.cli.main import main\ntry: main()\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    )
    done = subprocess.run(
        [sys.executable, "-c", look, "sql", f"SELECT {columns} FROM signatures"],
        cwd=ROOT, env=environment(tmp_path / "warehouse"), capture_output=True, text=True, check=True,
    )  # fmt: skip
    modules = done.stdout.splitlines()
    assert "sigdir.warehouse.sql.engine" in modules
    not_needed = {
        "difflib",
        "numba",
        "pandas",
        "pyarrow.compute",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "sigdir.signatures.rank",
        "sigdir.warehouse.sql.functions",
        "tarfile",
        "backports.zstd",
    }
    assert not not_needed.intersection(modules)


def test_stats_loads_neither_duckdb_nor_pandas(tmp_path: Path) -> None:
    """They would more than double its time."""
    empty_warehouse(tmp_path)
    look = "import sys\nfrom sigdir.cli.main import main\ntry: main(['stats'])\nexcept SystemExit: print(*sys.modules, sep='\\n')"
    done = subprocess.run(
        [sys.executable, "-c", look], cwd=ROOT, env=environment(tmp_path), capture_output=True, text=True, check=True
    )
    modules = done.stdout.splitlines()
    assert "sigdir.warehouse.log.snapshot" in modules
    assert not {"duckdb", "pandas"}.intersection(modules)
