"""The shell of ``sigdir sql``, at a real terminal, and its completion."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import pexpect
import pytest

import sigdir
from sigdir.cli.sql import is_sent, words_of
from sigdir.warehouse.sql.views import VIEWS
from sigdir.warehouse.table.paths import Paths
from tests.conftest import ROOT, SAFETY_SECONDS, environment
from tests.warehouse.support import names, publish

PROMPT = "sigdir>"
MORE = r"\.\.\.>"
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
        dimensions=(40, 140), use_poll=True,
        env={**environment(paths.root), "XDG_STATE_HOME": str(state), "TERM": "xterm"},
    )  # fmt: skip
    shell.expect(PROMPT)
    return shell


def exchange(terminal: pexpect.spawn, *steps: tuple[str, str]) -> None:
    """Enter lines, and wait for what follows each, and for the prompt where a statement ends."""
    for entered, answer in steps:
        terminal.send(f"{entered}\r")
        terminal.expect(answer)
        if answer != MORE:
            terminal.expect(PROMPT)


SLOW = "SELECT max(hash(a.range * b.range)) FROM range(100000000) a, range(1000000) b;"
COUNT = "SELECT count(*) AS n FROM signatures WHERE text_signature = 'new()';"


def test_a_session_at_a_terminal(paths: Paths, tmp_path: Path) -> None:
    """Statements of several lines, with their time; errors; Ctrl-C; completion; commands; and the history of a session."""
    with closing(shell_at_a_terminal(paths, tmp_path)) as terminal:
        exchange(terminal, ("SELECT 40 +", MORE), ("2 AS answer;", rf"│ +42 │(?s:.*){TIME}"))
        exchange(
            terminal,
            ("SELEC 1;", "Error: .*syntax error"),
            ("COPY (SELECT 1) TO 'x.csv';", "Error: one query that reads"),
            ("SELECT selector('transfer(address,uint)') AS s;", "0xa9059cbb"),
            ("SELECT count(*) AS n", MORE),
            ("from event_s\t WHERE text_signature LIKE 'E%';", r"event_signatures(?s:.*)│ +3 │"),
        )
        terminal.send(f"SELECT 'begun' AS t; {SLOW}\r")
        terminal.expect(TIME)  # of the first statement; until then Ctrl-C would clear the line
        terminal.sendintr()
        terminal.expect("interrupted")
        terminal.expect(PROMPT)
        exchange(terminal, (".tables", "collisions +hex_signature, texts"), (COUNT, "│ +0 │"))
        publish(paths, ["new()"])
        exchange(terminal, (COUNT, "│ +0 │"), (".refresh", "version 2: 21 signatures"), (COUNT, "│ +1 │"))
        exchange(terminal, (".nonsense", "Ctrl-C stops a statement"), ("SELECT 12345 AS", MORE))
        terminal.sendintr()  # forgets what is not finished
        terminal.expect(PROMPT)
        exchange(terminal, ("SELECT 54321 AS n;", "│ 54321 │"))
        terminal.sendeof()
        terminal.expect(pexpect.EOF)
        terminal.close()
        assert terminal.exitstatus == 0
    history = tmp_path / "sigdir" / "sql_history"
    assert "SELECT 40 +\n2 AS answer;\n" in history.read_text()
    assert history.stat().st_mode & 0o777 == 0o600
    with closing(shell_at_a_terminal(paths, tmp_path)) as terminal:
        exchange(terminal, ("\x1b[A", "│ 54321 │"))
        terminal.send(".quit\r")
        terminal.expect(pexpect.EOF)


def test_enter_sends_a_finished_statement() -> None:
    """Or a command, or an empty line; otherwise it starts a new line."""
    assert all(map(is_sent, ("SELECT 1;", "SELECT 1;\n ", "", "  ", ".help", "quit")))
    assert not any(map(is_sent, ("SELECT 1", "SELECT\n1", "quite")))


def test_completion(paths: Paths) -> None:
    """Tables and search after FROM; columns of the named tables; keywords, functions and our macros; nothing of nothing."""
    completed = words_of(sigdir.open(paths.root)).completions
    for begun in VIEWS:
        assert begun in completed(f"select * from {begun[:3]}")
    assert completed("SELECT 1 FROM signatures JOIN ev") == ["event_signatures", "evidence"]
    assert completed("FROM se") == ["search"]
    assert completed("SELECT te", " FROM collisions")[:2] == ["texts", "text_signatures"]
    assert completed("FROM imports WHERE com")[0] == "committed_at"
    assert "text_signature" not in completed("SELECT text_si", " FROM imports")
    assert "text_signature" in completed("SELECT text_si")
    for word in ("signature_name", "parameter_list", "parameter_types", "hex_of", "levenshtein"):
        assert word in completed(f"SELECT {word[:-2]}")
    assert "SELECT" in completed("sel")
    assert completed("SELECT ") == []
