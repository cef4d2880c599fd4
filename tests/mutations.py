"""Do the tests notice a change? ``python -m tests.mutations --count 40 --seed 1`` changes one place of the source at a time.

Each change is one that a mistake could make (another comparison, a number one higher, a call left out). The tests that name the
changed module run first, then the others of its layer, until one fails; the source is put back. The same seed on the same source makes
the same changes. Run it in a clean checkout that nobody else uses.
"""

from __future__ import annotations

import argparse
import ast
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

LAYERS = ("signatures", "warehouse", "pipeline", "serve", "cli")
_SECONDS = 1800
_PYTEST = [sys.executable, "-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadfile", "-m"]
_OTHER = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}


class Mutation(NamedTuple):
    """One place of a file, and what stands there instead."""

    file: Path
    place: ast.expr | ast.stmt
    text: str

    def changed(self, source: bytes) -> bytes:
        lines, place = source.splitlines(keepends=True), self.place
        assert place.end_lineno is not None
        before = b"".join(lines[: place.lineno - 1]) + lines[place.lineno - 1][: place.col_offset]
        after = lines[place.end_lineno - 1][place.end_col_offset :] + b"".join(lines[place.end_lineno :])
        return before + self.text.encode() + after


def mutations(file: Path) -> Iterator[Mutation]:
    """Every change that can be made inside of a file's functions."""
    functions = [node for node in ast.walk(ast.parse(file.read_bytes())) if isinstance(node, ast.FunctionDef)]
    for node in {inner: None for function in functions for part in function.body for inner in ast.walk(part)}:
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OTHER:
                yield Mutation(file, node, f"({ast.unparse(left)} {_OTHER[type(op)]} {ast.unparse(right)})")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield Mutation(file, node, f"({ast.unparse(left)} {_ARITHMETIC[type(op)]} {ast.unparse(right)})")
            case ast.BoolOp(op=op, values=values):
                other = " or " if isinstance(op, ast.And) else " and "
                yield Mutation(file, node, f"({other.join(f'({ast.unparse(value)})' for value in values)})")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
                yield Mutation(file, test, f"(not ({ast.unparse(test)}))")
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield Mutation(file, node, f"({value} + 1)")
            case ast.Expr(value=ast.Call()):
                yield Mutation(file, node, "pass")
            case ast.Return(value=ast.expr()):
                yield Mutation(file, node, "return None")


def noticed(mutation: Mutation, mark: str) -> str:
    """The first test that fails with this change; empty if none does."""
    before = mutation.file.read_bytes()
    name = re.escape(".".join(mutation.file.with_suffix("").parts))
    tests = sorted(Path("tests").rglob("test_*.py"))
    related = [test for test in tests if re.search(rf"\b{name}\b", test.read_text())]
    layer = Path("tests", mutation.file.parts[0])
    others = [test for test in tests if test.is_relative_to(layer) and test not in related]
    mutation.file.write_bytes(mutation.changed(before))
    try:
        for part in filter(None, (related, others)):
            command = [*_PYTEST, mark, *map(str, part)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            if done.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else f"status {done.returncode}"
        return ""
    except subprocess.TimeoutExpired:
        return f"no end after {_SECONDS} s"
    finally:
        mutation.file.write_bytes(before)


def main() -> int:
    parser = argparse.ArgumentParser(description="Change the source in places, one at a time, and run the tests.")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--layer", action="append", choices=LAYERS, help="only here; may be given more than once")
    parser.add_argument("--mark", default="not long", help="which tests, as for pytest -m")
    options = parser.parse_args()
    if subprocess.run(["git", "diff", "--quiet"], check=False).returncode:
        parser.error("this checkout has changes that are not committed")
    listed = subprocess.check_output(["git", "ls-files", *(options.layer or LAYERS)], text=True).split()
    files = sorted(Path(name) for name in listed if name.endswith(".py"))
    chance, missed = random.Random(options.seed), 0
    chance.shuffle(files)
    possible = [found for file in files if (found := list(mutations(file)))]
    chosen = [chance.choice(found) for found in possible[: options.count]]
    for mutation in chosen:
        by = noticed(mutation, options.mark)
        missed += not by
        shown = mutation.text.replace("\n", " ")[:60]
        print(f"{mutation.file}:{mutation.place.lineno}: {shown}: {by or 'NOT NOTICED'}", flush=True)
    print(f"{len(chosen) - missed} of {len(chosen)} noticed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
