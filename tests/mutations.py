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
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LAYERS = ("signatures", "warehouse", "pipeline", "serve", "cli")
_SECONDS = 1800
_PYTEST = ["-m", "pytest", "-x", "-q", "-n", "2", "--dist", "loadfile", "-m"]
_OTHER = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
_ARITHMETIC = {ast.Add: "-", ast.Sub: "+", ast.Mult: "+", ast.FloorDiv: "*"}


@dataclass(frozen=True, slots=True)
class Mutation:
    """One place of a file and what stands there instead; ``start`` and ``end`` are offsets in bytes."""

    file: Path
    line: int
    start: int
    end: int
    text: str


def mutations(file: Path) -> Iterator[Mutation]:
    """Every change that can be made to a file."""
    source = file.read_bytes()
    begins = [0]
    for line in source.splitlines(keepends=True):
        begins.append(begins[-1] + len(line))

    def at(node: ast.AST, text: str, until: ast.AST | None = None) -> Mutation:
        end = until or node
        assert isinstance(node, ast.expr | ast.stmt)
        assert isinstance(end, ast.expr | ast.stmt)
        assert end.end_lineno is not None
        assert end.end_col_offset is not None
        start = begins[node.lineno - 1] + node.col_offset
        return Mutation(file, node.lineno, start, begins[end.end_lineno - 1] + end.end_col_offset, text)

    tree = ast.parse(source)
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    for statement in {inner: None for function in functions for part in function.body for inner in ast.walk(part)}:
        match statement:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _OTHER:
                yield at(statement, f"({ast.unparse(left)} {_OTHER[type(op)]} {ast.unparse(right)})")
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _ARITHMETIC:
                yield at(statement, f"({ast.unparse(left)} {_ARITHMETIC[type(op)]} {ast.unparse(right)})")
            case ast.BoolOp(op=op, values=values):
                other = " or " if isinstance(op, ast.And) else " and "
                yield at(statement, f"({other.join(f'({ast.unparse(value)})' for value in values)})")
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test) if not isinstance(test, ast.Compare):
                yield at(test, f"(not ({ast.unparse(test)}))")
            case ast.Constant(value=int(value)) if not isinstance(value, bool):
                yield at(statement, f"({value} + 1)")
            case ast.Expr(value=ast.Call()):
                yield at(statement, "pass")
            case ast.Return(value=ast.expr()):
                yield at(statement, "return None")


def chosen(layers: list[str], count: int, seed: int) -> list[Mutation]:
    """``count`` changes of files under version control, each of another module."""
    listed = subprocess.run(["git", "ls-files", *layers], capture_output=True, text=True, check=True).stdout.split()
    chance = random.Random(seed)
    files = sorted(Path(name) for name in listed if name.endswith(".py"))
    chance.shuffle(files)
    found: list[Mutation] = []
    for file in files:
        if len(found) < count and (possible := list(mutations(file))):
            found.append(chance.choice(possible))
    return found


def noticed(mutation: Mutation, mark: str) -> str:
    """The first test that fails with this change; empty if none does."""
    before = mutation.file.read_bytes()
    name = ".".join(mutation.file.with_suffix("").parts)
    tests = sorted(Path("tests").rglob("test_*.py"))
    related = [test for test in tests if re.search(rf"\b{re.escape(name)}\b", test.read_text())]
    mutation.file.write_bytes(before[: mutation.start] + mutation.text.encode() + before[mutation.end :])
    try:
        layer = Path("tests", mutation.file.parts[0])
        for part in (related, [test for test in tests if test.is_relative_to(layer) and test not in related]):
            if not part:
                continue
            command = [sys.executable, *_PYTEST, mark, *map(str, part)]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return f"no end after {_SECONDS} s"
            if done.returncode not in (0, 5):
                failed = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
                return failed[1] if failed else f"status {done.returncode}"
        return ""
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
    all = chosen(options.layer or list(LAYERS), options.count, options.seed)
    missed = 0
    for mutation in all:
        begun = time.monotonic()
        by = noticed(mutation, options.mark)
        missed += not by
        shown = mutation.text.replace("\n", " ")[:60]
        print(
            f"{mutation.file}:{mutation.line}: {shown}: {by or 'NOT NOTICED'} ({time.monotonic() - begun:.0f} s)",
            flush=True,
        )
    print(f"{len(all) - missed} of {len(all)} noticed")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
