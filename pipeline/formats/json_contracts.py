"""JSON with ABIs, identifiers or sources anywhere inside: one document, or one value a line.

Build-infos of Hardhat and Foundry, artifacts, standard JSON input and output, combined JSON, metadata, Etherscan's
answers, deployments, manifests, lists and maps of ABIs differ in where they put the same few things. So nothing here
knows a tool's paths: each list and each object is shown to the recognisers in turn. What one recognises is yielded
and not searched further; anything else is searched member by member, in the order of the document.

Invariants
    What is recognised holds all of its candidates: an entry that is not understood is one reject.
    A value is recognised by what it holds. Its key only says that a list without entries is an ABI, that an object
    is one of identifiers, and that a text is a source.
    Nothing recurses, and a text of JSON inside a text of JSON is searched to a depth of ``_MAX_TEXTS``.
    A candidate that stands in a document twice is counted twice.

The runtime code beside an ABI, in the artifacts of Hardhat, Foundry, Truffle, Brownie, Remix and Ape, in the output
of solc and Vyper, and in Sourcify's answers.

Each puts it under another name, as hex digits or as an object that holds them. Where an artifact has creation code
alone, the runtime code inside of it is used.
"""

from __future__ import annotations

import posixpath
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from io import BytesIO
from itertools import chain, islice
from typing import Any, NamedTuple

from sigdir.pipeline.errors import BadInput, BrokenJSON, printable
from sigdir.pipeline.formats import json_lists, solidity, vyper
from sigdir.pipeline.formats.abi import entries_of, is_abi, is_entry, is_foreign, is_labelled_abi
from sigdir.pipeline.formats.contracts import ABI_KEYS, IDENTIFIER_KEYS, ContractNames, contract_of_file
from sigdir.pipeline.formats.json_reader import (
    document_of,
    first_values,
    is_document,
    is_json,
    is_syntax_tree,
    members,
    parse_document,
    values_of,
)
from sigdir.pipeline.source import OVER_TIME, BytecodeCounts, Source
from sigdir.signatures.abi import abi_entry, encoded, has_no_selector, rejected_entry
from sigdir.signatures.bytecode import (
    BadBytecode,
    RuntimeCode,
    kind_of,
    runtime_code,
    runtime_code_of_creation,
    witnessed,
)
from sigdir.signatures.candidates import BATCH_ROWS, Candidates, Entry, ReadTask, pack
from sigdir.signatures.collections import FUNCTIONS
from sigdir.signatures.evidence import Contract, Kind, Sighting, Witness
from sigdir.signatures.grammar import OK

_RUNTIME_KEYS = ("deployedBytecode", "bin-runtime", "bytecode_runtime", "runtimeBytecode")
_CREATION_KEYS = ("bytecode", "bin", "Bin", "creationBytecode", "deploymentBytecode")
_INNER_KEYS = ("object", "onchainBytecode", "recompiledBytecode", "bytecode")
_HOLDER_KEYS = ("evm", "data")

_SECONDS = 10.0
"""The time for the bytecodes of one input. 3 M honest contracts take as long; hostile ones take up to a second each."""


class CodeChecker:
    """Checks the ABIs of one input against the bytecode beside them."""

    def __init__(self, counts: BytecodeCounts) -> None:
        self._counts = counts
        self._left = _SECONDS
        self._text: str | None = None
        self._code: RuntimeCode | None = None
        self._fits = True

    def check(self, entries: Iterable[Entry], holder: dict[str, Any]) -> Iterable[Entry]:
        """The entries of the ABI in ``holder``, with their witness where it holds readable bytecode."""
        code = self._code_in(holder)
        return entries if code is None else self._counted(witnessed(entries, code))

    def _code_in(self, holder: dict[str, Any]) -> RuntimeCode | None:
        for read, keys in ((runtime_code, _RUNTIME_KEYS), (runtime_code_of_creation, _CREATION_KEYS)):
            text = _code_text(holder, keys)
            if text is None:
                continue
            if text is not self._text:  # solc's output has the ABI and the identifiers of one contract
                self._text, self._fits = text, True
                self._code = self._analysed(read, text)
            return self._code
        return None

    def _analysed(self, read: Any, text: str) -> RuntimeCode | None:
        if self._left < 0:
            self._counts.unread[OVER_TIME] += 1
            return None
        began = time.monotonic()
        try:
            code: RuntimeCode = read(text)
        except BadBytecode as error:
            self._counts.unread[error.reason] += 1
            return None
        finally:
            self._left -= time.monotonic() - began
        self._counts.contracts += 1
        return code

    def _counted(self, entries: Iterator[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if entry.sighting.witness is Witness.COMPILED:
                self._counts.compiled += 1
            elif entry.reject_reason == OK:
                self._counts.declared += 1
                if self._fits and kind_of(entry) is Kind.FUNCTION:
                    self._fits = False
                    self._counts.misfits += 1
            yield entry


def _code_text(holder: dict[str, Any], keys: tuple[str, ...]) -> str | None:
    """The hex digits under one of the keys; None where there are none. An interface has an empty bytecode."""
    for place in (holder, *(holder.get(key) for key in _HOLDER_KEYS)):
        if isinstance(place, dict):
            for key in keys:
                value = place.get(key)
                if isinstance(value, dict):
                    value = next((value[inner] for inner in _INNER_KEYS if value.get(inner)), None)
                if isinstance(value, str) and value.strip() not in ("", "0x"):
                    return value
    return None


_SAMPLE_LINES = 8


def looks_like(source: Source) -> bool:
    if not is_json(source):
        return False
    values = [document_of(source)] if is_document(source) else first_values(source, _SAMPLE_LINES)
    return any(holds_something(source, value) for value in values)


def holds_something(source: Source, value: Any) -> bool:
    """Whether a JSON value holds an ABI, identifiers or sources."""
    return next(search(source.name, value), None) is not None


def read(source: Source) -> Iterator[ReadTask]:
    if is_document(source):
        return read_value(source, document_of(source), contract_of_file(source))
    return read_rows(source, ((number, value, None) for number, value in values_of(source.lines())))


def read_rows(source: Source, rows: Iterable[tuple[int, Any, Contract | None]]) -> Iterator[ReadTask]:
    """The candidates of numbered values, each with the contract whose ABI it is if nothing in it names another."""
    return _tasks(source, _of_rows(source, rows, CodeChecker(source.bytecode)))


def read_value(source: Source, value: Any, contract: Contract | None = None) -> Iterator[ReadTask]:
    """The candidates of a value, numbered through all of it, then those of the sources inside. Raises BadInput.

    ``contract`` is the one whose ABI the value is if nothing in it names another.
    """
    findings = search(source.name, value, source.below, contract)
    first = next(findings, None)
    if first is None:
        raise BadInput(source.name, "no ABI, no identifiers and no sources inside")
    return _tasks(source, _of_value(chain([first], findings), CodeChecker(source.bytecode)))


def _of_value(findings: Iterable[Finding], checker: CodeChecker) -> Iterator[list[Entry] | Sources]:
    before = 0
    for finding in findings:
        if isinstance(finding, Sources):
            yield finding
        else:
            yield [entry._replace(line=before + entry.line) for entry in _checked(finding, checker)]
            before += finding.size


def _checked(finding: Entries, checker: CodeChecker) -> Iterable[Entry]:
    return finding.candidates if finding.holder is None else checker.check(finding.candidates, finding.holder)


def _of_rows(
    source: Source, rows: Iterable[tuple[int, Any, Contract | None]], checker: CodeChecker
) -> Iterator[list[Entry] | Sources]:
    for number, value, contract in rows:
        if isinstance(value, Entry):
            yield [value]
            continue
        finding = None
        for finding in search(source.name, value, source.below, contract):
            if isinstance(finding, Sources):
                yield finding
            else:
                yield [entry._replace(line=number) for entry in _checked(finding, checker)]
        if finding is None:
            yield [rejected_entry(value, number)]


def _tasks(source: Source, findings: Iterable[list[Entry] | Sources]) -> Iterator[ReadTask]:
    held: list[Entry] = []
    for finding in findings:
        if isinstance(finding, Sources):
            yield from _read_sources(finding, source)
            continue
        held += finding
        if len(held) >= BATCH_ROWS:
            yield from pack(held, source.number)
            held = []
    yield from pack(held, source.number)


# Sources inside: each is an input of the reader of its language, with a path below the document's, so that imports resolve
# among them and no file on disk is opened. Its lines are a section of the document, so a reject names the source and the line.

_PROJECTS: dict[str, type[solidity.Project | vyper.Project]] = {
    "Solidity": solidity.Project,
    "Vyper": vyper.Project,
}
_ENDINGS = {".sol": "Solidity", ".vy": "Vyper", ".vyi": "Vyper"}


def _read_sources(sources: Sources, document: Source) -> Iterator[ReadTask]:
    """The candidates of sources found in an open document. A source that cannot be read is one reject."""
    first_numbers: list[int] = []
    readers: dict[str, solidity.Project | vyper.Project] = {}
    for path, text in sources.texts.items():
        name = f"{document.name}:{printable(path)}"
        before = document.sections.add(name, text.count("\n") + 1)
        language = _ENDINGS.get(posixpath.splitext(path)[1].lower(), sources.language)
        if language not in _PROJECTS:
            yield from pack([rejected_entry({"path": path, "language": language}, before + 1)], document.number)
            continue
        if language not in readers:
            readers[language] = _PROJECTS[language]([document.path], document.path, sources.remappings)
        source = _inner(document, path, name, text)
        source.number = len(first_numbers)
        first_numbers.append(before)
        try:
            with source.open(lambda _: None):
                readers[language].add(source)
        except BadInput:
            yield from pack([rejected_entry({"path": path, "bytes": source.size}, before + 1)], document.number)
    for reader in readers.values():
        for task in reader.read():
            yield partial(_moved, task, document.number, first_numbers)


def _inner(document: Source, path: str, name: str, text: str) -> Source:
    """A source as an input of its own. Its path stays below the document's, whatever it is."""
    below = posixpath.normpath("/" + path).lstrip("/")
    code = encoded(text)
    return Source(posixpath.join(document.path, below), False, name, len(code), partial(BytesIO, code))


def _moved(task: ReadTask, number: int, first_numbers: list[int]) -> Iterator[Candidates]:
    """Candidates of a source as candidates of the document."""
    batches = [task] if isinstance(task, Candidates) else task()
    for batch in batches:
        yield replace(batch, file=number, lines=batch.lines + first_numbers[batch.file])


# Finds ABIs, identifiers, maps of hashes and sources wherever they lie in a JSON value.

_SAMPLE = 8
_MAX_TEXTS = 4
"""JSON in a text in JSON: an answer of Etherscan holds a standard JSON input, which may hold metadata."""
_SHORTEST_TEXT = 16
"""A text of JSON with a candidate is longer."""

_FLAT_KEY = "SourceCode"


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of one compilation, which import each other."""

    texts: dict[str, str]
    """By path."""
    language: str = ""
    """As the document states it: `Solidity`, `Vyper` or another; empty if it does not."""
    remappings: tuple[str, ...] = ()
    """solc's, as `context:prefix=target`."""


class Entries(NamedTuple):
    """The candidates of one value, numbered from 1. They are made when they are read: detection reads none."""

    candidates: Iterable[Entry]
    size: int
    """The number of its entries, with those that have no selector."""
    holder: dict[str, Any] | None = None
    """The object around a contract's ABI or identifiers. It may hold the contract's bytecode."""


Finding = Entries | Sources


class _Place(NamedTuple):
    """A value that is still to be searched."""

    key: str
    value: Any
    parent: dict[str, Any]
    texts: int
    """How many texts of JSON it lies in."""
    names: ContractNames
    above: str = ""
    """The key of the object around it."""
    contract: Contract | None = None
    """The contract that it belongs to."""
    is_whole: bool = False
    """Whether it is the document, or an element of the list that the document is."""


def search(name: str, document: Any, below: str = "", contract: Contract | None = None) -> Iterator[Finding]:
    """What a JSON value holds, in its order. ``name`` is the input's, ``below`` that below what the user named.
    ``contract`` is the one whose ABI the value is if nothing in it names another.
    """
    waiting = [_Place("", document, {}, 0, ContractNames(below, contract), is_whole=True)]
    while waiting:
        place = waiting.pop()
        if place.contract is None and isinstance(place.value, dict):
            place = place._replace(contract=place.names.of_object(place.value, place.key, place.above, place.is_whole))
        elif place.is_whole and is_abi(place.value):
            place = place._replace(contract=contract)
        if isinstance(place.value, str):
            found, inner = _in_text(name, place)
            waiting += inner
        else:
            found = _recognised(place)
            if found is None:
                waiting += _members(place)
        if found is not None:
            yield found


def _recognised(place: _Place) -> Finding | None:
    for recognise in _RECOGNISERS:
        found = recognise(place)
        if found is not None:
            return found
    return None


def _members(place: _Place) -> list[_Place]:
    """The members that can hold something, the last one first."""
    value = place.value
    if isinstance(value, dict):
        if is_syntax_tree(value):
            return []
        inner = [
            _Place(key, item, value, place.texts, place.names, place.key, place.contract)
            for key, item in members(value)
            if _may_hold(item, key)
        ]
    elif isinstance(value, list):
        inner = [
            _Place("", item, {}, place.texts, place.names, place.key, place.contract, place.is_whole)
            for item in value
            if _may_hold(item)
        ]
    else:
        return []
    return inner[::-1]


def _may_hold(value: Any, key: str = "") -> bool:
    if isinstance(value, str):
        return len(value) >= _SHORTEST_TEXT or key in ABI_KEYS
    return isinstance(value, dict | list) and (bool(value) or key in ABI_KEYS)


# Texts.


def _in_text(name: str, place: _Place) -> tuple[Finding | None, list[_Place]]:
    """What a text is, and the JSON value inside it: ABIs, metadata and Etherscan's sources often are texts of JSON."""
    text = place.value.strip()
    if text[:1] not in ("{", "[") or place.texts == _MAX_TEXTS:
        return (_flat_source(place) if text and place.key == _FLAT_KEY else None), []
    try:
        value = parse_document(name, encoded(text))
    except BrokenJSON:
        broken = place.key in ABI_KEYS or place.key == _FLAT_KEY
        return (Entries([rejected_entry(text, 1)], 1) if broken else None), []
    return None, [place._replace(value=value, texts=place.texts + 1)]


def _flat_source(place: _Place) -> Sources:
    """Etherscan's answer for a contract of one file."""
    is_vyper = str(place.parent.get("CompilerVersion", "")).lower().startswith("vyper")
    language, ending = ("Vyper", ".vy") if is_vyper else ("Solidity", ".sol")
    return Sources({f"{place.parent.get('ContractName') or 'Contract'}{ending}": place.value}, language)


# Recognisers: the finding that a list or an object is, or None.


def _abi(place: _Place) -> Finding | None:
    if is_abi(place.value) or (place.key in ABI_KEYS and is_labelled_abi(place.value)):
        contract = place.contract or place.names.of_key(place.key, place.above) or _of_address(place.names)
        return Entries(entries_of(place.value, contract), len(place.value), place.parent)
    return None


def _of_address(names: ContractNames) -> Contract | None:
    """The contract whose address the file is named by: Etherscan's answers have an ABI and no name."""
    contract = names.contract_of_file
    return contract if contract is not None and contract.deployed is not None else None


def _one_entry(place: _Place) -> Finding | None:
    value = place.value
    if not (isinstance(value, dict) and is_entry(value)):
        return None
    if is_foreign(value):
        return Entries([rejected_entry(value, 1)], 1)
    return Entries([] if has_no_selector(value.get("type")) else [abi_entry(value, 1, contract=place.contract)], 1)


def _identifiers(place: _Place) -> Finding | None:
    """An object from text to hash."""
    value = place.value
    if place.key in IDENTIFIER_KEYS and isinstance(value, dict) and value:
        if not all("(" in text for text, _ in islice(members(value), _SAMPLE)):
            return None
        # A compiler's identifiers are those of functions.
        function = Sighting(Kind.FUNCTION, Witness.DECLARED, contract=place.contract)
        found = _listed(json_lists.identifier_items(value))
        return Entries([_with(entry, function) for entry in found.candidates], found.size, place.parent)
    if place.key == "gasEstimates" or not json_lists.is_identifiers(value):
        return None
    return _listed(json_lists.identifier_items(value))


def _with(entry: Entry, function: Sighting) -> Entry:
    return entry._replace(sighting=function) if entry.declared_kind == FUNCTIONS else entry


def _hashes(place: _Place) -> Finding | None:
    """An object from hash to text."""
    is_one = json_lists.is_map_of_signatures(place.value)
    return _listed(json_lists.map_items(place.value)) if is_one else None


def _signatures(place: _Place) -> Finding | None:
    """A list of texts. Inside of a document such a list may be anything."""
    is_one = place.is_whole and json_lists.is_list_of_signatures(place.value)
    return _listed(json_lists.text_items(place.value)) if is_one else None


def _openchain(place: _Place) -> Finding | None:
    is_one = json_lists.is_openchain(place.value)
    return _listed(json_lists.openchain_items(place.value)) if is_one else None


def _listed(items: Iterable[json_lists.ListItem]) -> Entries:
    found = list(json_lists.entries(items))
    return Entries(found, len(found))


def _sources(place: _Place) -> Finding | None:
    """An object from path to `{"content": ...}`: the sources of a standard JSON input, of metadata, of Etherscan."""
    value = place.value
    if not (isinstance(value, dict) and value):
        return None
    contents = {path: _content(source) for path, source in islice(members(value), _SAMPLE)}
    if not any(contents.values()) or not all(isinstance(source, dict) for source in islice(value.values(), _SAMPLE)):
        return None
    language = place.parent.get("language")
    language = language if isinstance(language, str) else ""
    if not language and not any(path.endswith(tuple(_ENDINGS)) for path in contents):
        return None
    texts = {path: text for path, source in members(value) if (text := _content(source)) is not None}
    return Sources(texts, language, _remappings(place.parent))


def _content(source: Any) -> str | None:
    content = source.get("content") if isinstance(source, dict) else None
    return content if isinstance(content, str) else None


def _remappings(document: dict[str, Any]) -> tuple[str, ...]:
    settings = document.get("settings")
    remappings = settings.get("remappings") if isinstance(settings, dict) else None
    return tuple(item for item in remappings if isinstance(item, str)) if isinstance(remappings, list) else ()


_RECOGNISERS: tuple[Callable[[_Place], Finding | None], ...] = (
    _abi, _one_entry, _identifiers, _hashes, _signatures, _openchain, _sources,
)  # fmt: skip
