"""The shell of ``sigdir sql``, at a real terminal, and its completion."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest

import sigdir
from sigdir.cli.shell import Words, is_sent, words_of
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.warehouse.support import names, publish

PROMPT = "sigdir>"
TIME = r"\d+\.\d{3} s"


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> Paths:
    """A small warehouse."""
    paths = Paths(tmp_path_factory.mktemp("shell") / "warehouse")
    publish(paths, names("f", 20), names("E", 3), ["1bad("])
    return paths


def shell_at_a_terminal(paths: Paths, state: Path) -> pexpect.spawn:
    """The shell in a terminal, with its history in a folder."""
    shell = pexpect.spawn(
        sys.executable, ["-m", "sigdir", "sql"], cwd=ROOT, timeout=SAFETY_SECONDS, encoding="utf-8",
        dimensions=(40, 140),
        env={**environment(paths.root), "XDG_STATE_HOME": str(state), "TERM": "xterm"},
    )  # fmt: skip
    shell.expect(PROMPT)
    return shell


@pytest.fixture
def terminal(paths: Paths, tmp_path: Path) -> Iterator[pexpect.spawn]:
    """A shell that is killed at the end of the test."""
    shell = shell_at_a_terminal(paths, tmp_path)
    yield shell
    shell.close(force=True)


def test_statements_are_answered_with_their_time(terminal: pexpect.spawn, tmp_path: Path) -> None:
    """A statement may have several lines. After an error the shell continues; Ctrl-D ends it. The history is saved."""
    terminal.send("SELECT 40 +\r")
    terminal.send("2 AS answer;\r")
    terminal.expect("│ +42 │")
    terminal.expect(TIME)
    terminal.expect(PROMPT)
    terminal.send("SELEC 1;\r")
    terminal.expect("Error: .*syntax error")
    terminal.expect(PROMPT)
    terminal.send("COPY (SELECT 1) TO 'x.csv';\r")
    terminal.expect("Error: one query that reads")
    terminal.expect(PROMPT)
    terminal.send("SELECT selector('transfer(address,uint)') AS s;\r")
    terminal.expect("0xa9059cbb")
    terminal.expect(PROMPT)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    terminal.close()
    assert terminal.exitstatus == 0
    history = tmp_path / "sigdir" / "sql_history"
    assert "SELECT 40 +\n2 AS answer;\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600


def test_ctrl_c_stops_a_statement_and_not_the_shell(terminal: pexpect.spawn) -> None:
    """The next statement runs."""
    slow = "SELECT max(hash(a.range * b.range)) FROM range(100000000) a, range(1000000) b;"
    terminal.send(f"SELECT 'begun' AS t; {slow}\r")
    terminal.expect(TIME)  # of the first statement; until then Ctrl-C would clear the line
    terminal.sendintr()
    terminal.expect("interrupted")
    terminal.expect(PROMPT)
    terminal.send("SELECT 'still here' AS t;\r")
    terminal.expect("│ still here │")


def test_commands_start_with_a_dot(terminal: pexpect.spawn, paths: Paths) -> None:
    """They are .tables, .refresh, .quit; any other shows the help."""
    terminal.send(".tables\r")
    terminal.expect("collisions +hex_signature, texts")
    terminal.expect(PROMPT)
    publish(paths, ["new()"])
    count = "SELECT count(*) AS n FROM signatures WHERE text_signature = 'new()';\r"
    terminal.send(count)
    terminal.expect("│ +0 │")
    terminal.expect(PROMPT)
    terminal.send(".refresh\r")
    terminal.expect("version 2: 21 signatures")
    terminal.expect(PROMPT)
    terminal.send(count)
    terminal.expect("│ +1 │")
    terminal.expect(PROMPT)
    terminal.send(".nonsense\r")
    terminal.expect("Ctrl-C stops a statement")
    terminal.expect(PROMPT)
    terminal.send(".quit\r")
    terminal.expect(pexpect.EOF)


def test_tab_completes_at_the_terminal(terminal: pexpect.spawn) -> None:
    """Whatever the case, also in the second line of a statement; a single completion is put in."""
    terminal.send("SELECT count(*) AS n\r")
    terminal.expect(r"\.\.\.>")
    terminal.send("from event_s\t WHERE text_signature LIKE 'E%';\r")
    terminal.expect("event_signatures")
    terminal.expect("│ +3 │")
    terminal.expect(PROMPT)


def test_the_history_of_another_session_is_there(terminal: pexpect.spawn, tmp_path: Path, paths: Paths) -> None:
    """The key up brings its last line back; Ctrl-C forgets a statement that is not finished."""
    terminal.send("SELECT 12345 AS\r")
    terminal.expect(r"\.\.\.>")
    terminal.sendintr()
    terminal.expect(PROMPT)
    terminal.send("SELECT 54321 AS n;\r")
    terminal.expect("│ 54321 │")
    terminal.expect(PROMPT)
    terminal.sendeof()
    terminal.expect(pexpect.EOF)
    with_shell = shell_at_a_terminal(paths, tmp_path)
    with_shell.send("\x1b[A\r")
    with_shell.expect("│ 54321 │")
    with_shell.close(force=True)


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT 1;\n ", True),
        ("SELECT\n1", False),
        ("", True),
        ("  ", True),
        (".help", True),
        ("quit", True),
        ("quite", False),
    ],
)
def test_enter_sends_a_finished_statement(text: str, whole: bool) -> None:
    """Or a command, or an empty line; otherwise it starts a new line."""
    assert is_sent(text) == whole


@pytest.fixture(scope="module")
def completer(paths: Paths) -> Words:
    return words_of(sigdir.open(paths.root))


def completed(completer: Words, text: str, after: str = "") -> list[str]:
    """The completions at the end of ``text``, with ``after`` after the cursor."""
    return completer.completions(text, after)


def test_tables_follow_from_and_join(completer: Words) -> None:
    """Completion offers all of them and search, and nothing else."""
    for begun in VIEWS:
        assert begun in completed(completer, f"select * from {begun[:3]}")
    assert completed(completer, "SELECT 1 FROM signatures JOIN ev") == ["event_signatures", "evidence"]
    assert completed(completer, "FROM se") == ["search"]


def test_columns_of_the_named_tables_come_first(completer: Words) -> None:
    """Keywords and functions follow. If the statement names a table, columns of other tables are left out."""
    assert completed(completer, "SELECT te", " FROM collisions")[:2] == ["texts", "text_signatures"]
    assert completed(completer, "FROM imports WHERE com")[0] == "committed_at"
    assert "text_signature" not in completed(completer, "SELECT text_si", " FROM imports")
    assert "text_signature" in completed(completer, "SELECT text_si")


def test_keywords_functions_and_macros_are_offered(completer: Words) -> None:
    """Our macros as well as the engine's functions; nothing if no word was started."""
    for macro in ("signature_name", "parameter_list", "parameter_types", "hex_of"):
        assert macro in completed(completer, f"SELECT {macro[:-2]}")
    assert "SELECT" in completed(completer, "sel")
    assert "levenshtein" in completed(completer, "SELECT leven")
    assert completed(completer, "SELECT ") == []
