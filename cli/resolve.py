"""The command `sigdir resolve`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

import click

from sigdir.cli.errors import Failure, command
from sigdir.cli.options import directory_options, json_option
from sigdir.cli.output import write_json
from sigdir.pipeline.directory import RankedText, Source, opened
from sigdir.pipeline.errors import printable
from sigdir.signatures.collections import parse_hash
from sigdir.signatures.interruption import waiting

_MAX_LINE = 1000


@command()
@click.argument("hashes", nargs=-1, required=True, metavar="HASH...")
@directory_options
@json_option("Write a list of hashes and their texts, each with its declaration and its reasons.")
def resolve(hashes: tuple[str, ...], source: Source, as_json: bool) -> None:
    """Show the texts of selectors and topics, the best first, and the reasons for their order.

    HASH is a selector, 8 hex digits, or a topic, 64; with or without 0x. - reads them from standard input, one a line.

    Exit status: 0 each has a text, 1 some have none, 2 a hash, the warehouse or the pack cannot be used, 130
    interrupted.

    \b
    Examples:
      sigdir resolve 0xa9059cbb
      sigdir resolve 0xa9059cbb --pack functions.pack --key operator.key.pub
      cut -d, -f3 calls.csv | sort -u | sigdir resolve - --json
    """
    wanted = list(dict.fromkeys(map(digest_of, hash_lines(hashes))))
    with opened(source) as directory:
        found = {digest: directory.ranked(digest) for digest in wanted}
    if as_json:
        write_json([{"hash": f"0x{digest.hex()}", "texts": _documents(texts)} for digest, texts in found.items()])
    else:
        click.echo("\n".join(line for digest, texts in found.items() for line in _shown(digest, texts)))
    sys.exit(0 if all(found.values()) else 1)


def hash_lines(hashes: Iterable[str]) -> Iterator[str]:
    """The arguments; in the place of `-` the lines of standard input."""
    for hash in hashes:
        if hash != "-":
            yield hash
            continue
        with waiting():
            while line := sys.stdin.readline(_MAX_LINE):
                if line.strip():
                    yield line.strip()


def digest_of(hash: str) -> bytes:
    """The bytes of a selector or a topic; raises Failure."""
    found = parse_hash(hash)
    if found is None:
        raise Failure(f"{printable(hash)[:80]!r} is neither a selector nor a topic: 8 or 64 hex digits")
    return found


def _documents(texts: Iterable[RankedText]) -> list[dict[str, object]]:
    return [
        {"text_signature": one.text, "position": place, "declaration": one.declaration or None, "reasons": one.reasons}
        for place, one in enumerate(texts, 1)
    ]


def _shown(digest: bytes, texts: list[RankedText]) -> Iterator[str]:
    if not texts:
        yield f"0x{digest.hex()}  no text is known"
    for one in texts:
        yield f"0x{digest.hex()}  {one.declaration or one.text}  ({'; '.join(one.reasons)})"
