"""Bytes to a tree of readings: calldata, logs and reverts, and the calls inside their values.

``Readings`` works in rounds, because the texts of a hash are in a directory that this layer does not know::

    readings = Readings(inputs)
    while wanted := readings.wanted():
        readings.supply({hash: known_texts(hash) for hash in wanted})
    readings.results()

Each round is one level of all inputs: their selectors and topics, then those of the calls inside, and so on. The
texts of a hash come in rank order. Candidates of a reading are ordered by fit, then by kind, then by that rank.

Invariants
    A reading keeps its raw bytes. A call inside a value is shown only if a text decodes all of its bytes.
    An input's tree has at most ``MAX_READINGS`` readings, ``MAX_LEVELS`` levels, and decodes at most a few times the
    input's size, its texts included (``Budget``); what is left out is said in ``note``, and the outer level is always
    there.
    A declaration is parsed where its text is tried, so what a look-up brings costs nothing before.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from sigdir.signatures.abi import (
    BUILT_IN,
    EMPTY,
    ERROR,
    NOTHING,
    PANIC,
    Returned,
    given_returns,
    panic,
    with_standard,
)
from sigdir.signatures.abi_decoder import SELECTOR_BYTES, SPARE, UTF8, Budget, DecodeAttempt, attempt, layout_of
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.clear_signing import CallDisplay, Called, Descriptor, Place
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.errors import counted
from sigdir.signatures.evidence import Kind, Witness
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.inner_calls import MAY_DELEGATE, Inner, Path, callee, delegation, inner_calls
from sigdir.signatures.keccak import keccak256
from sigdir.signatures.logs import Split, log_attempt
from sigdir.signatures.rank import Ranked, is_standard
from sigdir.signatures.standards import canonical, event_declarations, is_filtered, sources
from sigdir.signatures.types import MAX_TEXT, Type, parsed_declaration

if TYPE_CHECKING:  # it prefers the texts that are defined here
    from sigdir.signatures.given_contract import GivenContract

MAX_LEVELS = 16
"""Calls inside calls."""
MAX_READINGS = 1000
"""Of one input, the nested ones included."""
MAX_TEXTS = 100
"""Texts of an input's own hash that are tried, in rank order."""
NOTHING_RETURNED = "No data: the function returns nothing, or the address has no code."
CODE_NOTE = "The bytes begin as a contract's code does."
_INNER_TEXTS = 8
_SHOWN_TYPES = 200
_DISPLAYS_LEFT_OUT = "Of what a signer sees a part is left out: an answer of this size has no room for it."
_NOT_TRIED = "not tried: an answer of this size has no room for more."
_TOO_MANY = "It holds more calls than can be decoded at its size."
_OPENED = 3  # candidates of a reading whose values are searched for calls


class Form(StrEnum):
    """What bytes are, or are taken for."""

    AUTO = "auto"
    CALLDATA = "calldata"
    REVERT = "revert"
    LOG = "log"
    ARGUMENTS = "arguments"
    """Arguments without selector, beside their text."""
    CODE = "code"
    """A contract's bytecode, which has no arguments."""
    RETURN = "return"
    """What a call gave back; the selector of the call stands beside it."""
    PACKED = "packed"
    """Values that a contract packs without padding; the text says what the fields are, no contract has it."""


class Membership(IntEnum):
    """Whether the contract that was given with the bytes has a text; a lower number ranks first."""

    HAS = 0
    UNKNOWN = 1
    CANNOT = 2
    OTHER_HASH = 3
    """The text that was given with the bytes has another selector or topic than they have."""


class Input(NamedTuple):
    """Bytes to explain. ``texts``, canonical or as declared, are tried before the directory's; an anonymous log has no others.

    ``libraries`` is how many libraries are not linked into code. What a call returned has the ``selector`` of the call, and
    ``returned``, what a directory knows of it. ``contract`` is the one that was called, or made the log.
    """

    form: Form
    data: bytes
    topics: tuple[bytes, ...] = ()
    anonymous: bool = False
    texts: tuple[str, ...] = ()
    libraries: int = 0
    selector: bytes = b""
    returned: tuple[Returned, ...] = ()
    contract: GivenContract | None = None


class Known(NamedTuple):
    """A text that a directory has for a hash, and what it knows about it.

    ``types`` are those of its parameters as declared, empty without a declaration. ``membership`` is that of a contract,
    for the reason ``why``. ``mined`` says why it looks mined, "" if it does not.
    """

    text: str
    kind: Kind = Kind.UNKNOWN
    witness: Witness = Witness.LISTED
    declaration: str = ""
    types: tuple[Type, ...] = ()
    membership: Membership = Membership.UNKNOWN
    why: str = ""
    mined: str = ""

    def is_filtered(self, hash: bytes) -> bool:
        """Whether a lookup leaves it out, because another text of the hash is meant or a search found it."""
        return bool(self.mined) or self.witness is Witness.SOLVED or is_filtered(hash, self.text)

    @property
    def split(self) -> Split | None:
        """The indexed parameters of an event; None without a declaration."""
        return tuple(number for number, one in enumerate(self.types) if one.indexed) if self.types else None

    def of_contract(self, membership: Membership, why: str) -> Known:
        """The same text with what a contract says about it; a text of another hash stays one."""
        return self if self.membership is Membership.OTHER_HASH else self._replace(membership=membership, why=why)

    def parsed(self) -> Known:
        """The text with what its declaration says; without a declaration where that is of another text."""
        return self.declared_as(self.declaration) if self.declaration and not self.types else self

    def declared_as(self, declaration: str) -> Known:
        """The same text with what a declaration of it says; without one where that declares another text."""
        parsed = (_kept_declaration if len(declaration) <= _KEPT_TEXT else parsed_declaration)(declaration)
        if parsed is None or parsed.text != self.text:
            return self._replace(declaration="", types=())
        return self._replace(declaration=declaration, types=parsed.inputs)

    def named(self, found: DecodeAttempt) -> DecodeAttempt:
        """An attempt of the text with the names that are declared."""
        return found._replace(types=self.types) if self.types else found


_KEPT_TEXT = 256
_kept_declaration = lru_cache(maxsize=2048)(parsed_declaration)


def known_of(found: Ranked) -> Known:
    """What decoding takes of all that the sources say about a text; ``parsed`` reads its declaration."""
    summary = found.summary
    kind = summary.kinds[0] if len(summary.kinds) == 1 else Kind.UNKNOWN  # a function here may be an error there
    return Known(summary.text, kind, summary.witness, summary.declaration, mined=found.mined)


class Confidence(StrEnum):
    """How sure it is that a candidate is what was meant."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"
    NONE = "none"
    """It does not decode."""


@dataclass(slots=True)
class Candidate:
    """A text tried on the bytes of a reading.

    ``split`` are the indexed parameters of a log, ``others`` the other splits that fit, ``is_ambiguous`` whether one
    of them is as probable, ``is_as_declared`` whether no declaration says another split. ``reasons`` say why the confidence
    is what it is. ``note`` is a remark on the values.
    """

    known: Known
    attempt: DecodeAttempt
    confidence: Confidence = Confidence.NONE
    reasons: tuple[str, ...] = ()
    split: Split | None = None
    others: tuple[Split, ...] = ()
    is_ambiguous: bool = False
    is_as_declared: bool = True
    note: str = ""
    nested: list[Nested] = field(default_factory=list)
    display: CallDisplay | None = None
    """How it is shown to whoever signs it."""

    @property
    def decodes(self) -> bool:
        return self.attempt.values is not None


@dataclass(slots=True)
class Reading:
    """Bytes, what they are taken for, and the texts that were tried, best first.

    ``texts`` counts the known texts of the selector or topic, of which at most MAX_TEXTS were tried. ``note`` has
    sentences about what could not be read. ``is_anonymous`` says that a log has no topic of its event. ``selector`` is that
    of the call that returned the bytes, and ``texts`` then counts lists of types that declarations say.
    """

    form: Form
    data: bytes
    topics: tuple[bytes, ...] = ()
    texts: int = 0
    candidates: list[Candidate] = field(default_factory=list)
    note: str = ""
    is_anonymous: bool = False
    selector: bytes = b""

    @property
    def hash(self) -> bytes:
        """The selector or topic that was looked up; empty where there is none."""
        if self.form is Form.LOG:
            return self.topics[0] if self.topics and not self.is_anonymous else b""
        if self.form is Form.RETURN:
            return self.selector
        return self.data[:SELECTOR_BYTES] if self.form in (Form.CALLDATA, Form.REVERT, Form.AUTO) else b""

    def add_note(self, note: str) -> None:
        """Add a sentence, once."""
        if note not in self.note:
            self.note = f"{self.note} {note}".lstrip()

    @property
    def best(self) -> Candidate | None:
        """The first candidate, if it decodes."""
        return self.candidates[0] if self.candidates and self.candidates[0].decodes else None


Descriptors = Callable[[bytes, Place], Sequence[Descriptor]]
"""Gives those for a selector and a place: a chain and an address."""


def add_displays(input: Input, readings: Iterable[Reading], descriptors: Descriptors, spare: int = SPARE) -> None:
    """Say how a call is shown to whoever signs it, by the first descriptor for a contract that is called.

    So are the calls inside that are certain. All displays of an input have one budget; ``spare`` is that of ``Readings``.
    """
    called = input.contract.called if input.contract is not None else None
    if called is None:
        return
    budget = Budget.of(len(input.data), spare)
    for reading in readings:
        _add_display(reading, called, descriptors, budget)
        if budget.is_used_up:
            reading.add_note(_DISPLAYS_LEFT_OUT)


def _add_display(reading: Reading, called: Called, descriptors: Descriptors, budget: Budget) -> None:
    if reading.form not in (Form.CALLDATA, Form.PACKED) or budget.is_used_up:
        return
    hash, place = reading.hash, called.place
    found = descriptors(hash, place) if place is not None and len(hash) == SELECTOR_BYTES else ()
    for candidate in reading.candidates:
        types, values = candidate.attempt.types, candidate.attempt.values
        if values is None:
            continue
        candidate.display = next(filter(None, (one.shown(types, values, called, budget) for one in found)), None)
        for path, inner in candidate.nested:
            is_packed = inner.form is Form.PACKED
            goes_to = called if is_packed else callee(candidate.attempt.text, values, path, called)
            if goes_to is not None:
                _add_display(inner, goes_to, descriptors, budget)


class Nested(NamedTuple):
    """A reading of the bytes value that stands at ``path`` in a candidate's values."""

    path: Path
    reading: Reading


class _Tree:
    """What is left for an input: readings and bytes to decode. So many texts are tried whatever is left."""

    def __init__(self, input: Input, spare: int) -> None:
        self.input = input
        self.results: list[Reading] = []
        size = len(input.data) + sum(map(len, input.texts))
        self.outer, self.inner = Budget.of(size, spare), Budget.of(size, spare)
        self.always_tried = max(len(input.texts), spare >= SPARE)
        self.readings = MAX_READINGS


class _Inner(NamedTuple):
    """Bytes inside a value whose selector is looked up next. ``owner`` gets the reading; ``outer`` has the owner.

    Of arguments beside their text, which is ``beside``, the data begins with the text's selector.
    """

    tree: _Tree
    level: int
    owner: Candidate
    outer: Reading
    path: Path
    data: bytes
    beside: str = ""


class Readings:
    """The trees of some inputs, built level by level. Inputs share the look-ups of a round.

    ``spare`` is what an attempt on each input may read besides its size: the answer to an empty one is bounded by it.
    """

    def __init__(self, inputs: Iterable[Input], spare: int = SPARE) -> None:
        self._trees = [_Tree(input, spare) for input in inputs]
        self._inputs: list[tuple[_Tree, Reading]] = []
        self._inner: list[_Inner] = []
        for tree in self._trees:
            self._begin(tree)

    def wanted(self) -> frozenset[bytes]:
        """Selectors (4 bytes) and topics (32 bytes) whose texts ``supply`` needs next; empty at the end."""
        outer = {reading.hash for _, reading in self._inputs}
        return frozenset(outer.union(one.data[:SELECTOR_BYTES] for one in self._inner))

    def supply(self, known: Mapping[bytes, Sequence[Known]]) -> None:
        """Read one more level. The texts of each wanted hash stand in rank order."""
        inputs, self._inputs = self._inputs, []
        inner, self._inner = self._inner, []
        for tree, reading in inputs:
            self._read_input(tree, reading, known.get(reading.hash, ()))
        for one in inner:
            self._read_inner(one, known.get(one.data[:SELECTOR_BYTES], ()))

    def results(self) -> list[list[Reading]]:
        """The readings of each input, the likeliest first; more than one where its shape does not decide."""
        return [tree.results for tree in self._trees]

    def _begin(self, tree: _Tree) -> None:
        input = tree.input
        reading = Reading(input.form, input.data, input.topics, is_anonymous=input.anonymous, selector=input.selector)
        if input.form is Form.CODE:
            reading.note = CODE_NOTE
            tree.results = [reading]
        elif input.form is Form.RETURN:
            self._read_return(tree, reading)
        elif input.form is Form.LOG and (input.anonymous or not input.topics):
            self._read_input(tree, reading, ())
        elif input.form is not Form.LOG and len(input.data) < SELECTOR_BYTES:
            tree.results = _short(reading)
        else:
            self._inputs.append((tree, reading))

    # The input itself.

    def _read_input(self, tree: _Tree, reading: Reading, known: Sequence[Known]) -> None:
        ranked = _with_built_in(reading.hash, known)
        known = _of_contract(tree.input, reading.form, reading.hash, _with_given(tree.input, reading.hash, ranked))
        if reading.form is Form.LOG and not known and (unnamed := _of_contract(tree.input, Form.LOG, b"", ())):
            known, reading.is_anonymous = unnamed, True  # no text is known, and the ABI has anonymous events
        reading.texts = len(known)
        for text in known[:MAX_TEXTS]:
            has_room = tree.outer.admits(text.text, text.declaration)
            if has_room or len(reading.candidates) < tree.always_tried:
                reading.candidates.append(self._input_candidate(tree, reading, text))
        untried = len(known) - len(reading.candidates)
        if untried:
            reading.note = f"{counted(untried, 'known text')} {_NOT_TRIED}"
        elif not reading.candidates:
            reading.note = _unknown(reading, tree.input)
        _rank(reading, reading.form, passed=_passed(known, ranked, reading.candidates))
        tree.results = _by_form(reading)
        for result in tree.results:
            self._search(tree, 1, result)

    def _input_candidate(self, tree: _Tree, reading: Reading, known: Known) -> Candidate:
        if reading.form is not Form.LOG:
            return _candidate(reading.data[SELECTOR_BYTES:], known, tree.outer)
        first, known = 0 if reading.is_anonymous else 1, known.parsed()
        found = log_attempt(reading.topics[first:], reading.data, known.text, tree.outer, known.split, first)
        split = found.split if found.attempt.values is not None else None
        is_as_declared = split is None or known.split in (None, split)
        if split is not None and not is_as_declared:
            known = _declared_with(reading.hash, known, split)
        return Candidate(
            known, known.named(found.attempt), split=split, others=found.others, is_ambiguous=found.is_ambiguous,
            is_as_declared=is_as_declared,
        )  # fmt: skip

    def _read_return(self, tree: _Tree, reading: Reading) -> None:
        """Try what declarations say that the call returns. One that says nothing is for no data alone."""
        declared = [one.declaration for one in _of_contract(tree.input, reading.form, reading.hash, ())]
        given = given_returns([*tree.input.texts, *declared])
        returned = with_standard(reading.selector, [*given, *tree.input.returned])
        returned = [one for one in returned if one.types != NOTHING or not reading.data]
        functions = [Known(text, Kind.FUNCTION) for text in dict.fromkeys(one.text for one in returned)]
        marked = {one.text: one for one in _of_contract(tree.input, reading.form, reading.hash, functions)}
        reading.texts = len(returned)
        tried: list[tuple[Candidate, Returned]] = []
        for one in returned[:MAX_TEXTS]:
            if tree.outer.admits(one.types, one.declaration) or len(tried) < tree.always_tried:
                tried.append((_returned_candidate(reading.data, one, marked[one.text], tree.outer), one))
        _rank_returns(reading, tried)
        tree.results = [reading]
        self._search(tree, 1, reading)

    # What is inside.

    def _search(self, tree: _Tree, level: int, reading: Reading) -> None:
        """Collect the calls in the values of the best candidates."""
        for candidate in reading.candidates[:_OPENED]:
            found = candidate.attempt
            if found.values is not None and not found.left_over:
                types = _unindexed(found.types, candidate.split)
                for inner in inner_calls(found.text, types, found.values, tree.inner):
                    if not self._take(tree, level, candidate, reading, inner):
                        return

    def _take(self, tree: _Tree, level: int, candidate: Candidate, outer: Reading, inner: Inner) -> bool:
        """Take up one call; False where the tree is full."""
        if not inner.is_shown:
            return True
        if not tree.readings or level > MAX_LEVELS:
            limit = f"{MAX_LEVELS} levels" if tree.readings else f"{MAX_READINGS:,} calls"
            outer.add_note(f"It holds more calls; {limit} are decoded.")
            return bool(tree.readings)
        tree.readings -= 1
        if inner.kind == Form.CALLDATA:
            self._inner.append(_Inner(tree, level, candidate, outer, inner.path, inner.data))
            return True
        text = inner.attempt.text if inner.attempt else ""
        if inner.kind == Form.ARGUMENTS:
            data = keccak256(text.encode())[:SELECTOR_BYTES] + inner.data
            self._inner.append(_Inner(tree, level, candidate, outer, inner.path, data, text))
            return True
        if not tree.inner.admits(text, inner.note):
            outer.add_note(_TOO_MANY)
            return False
        reading = Reading(Form(inner.kind), inner.data, note=inner.note)
        candidate.nested.append(Nested(inner.path, reading))
        if inner.attempt:
            made = Candidate(Known(text), inner.attempt, Confidence.HIGH, ("its layout is known",))
            made.note = delegation(text, inner.attempt.values or ())
            reading.texts, reading.candidates = 1, [made]
        self._search(tree, level + 1, reading)
        return True

    def _read_inner(self, one: _Inner, known: Sequence[Known]) -> None:
        """Read a call inside a value."""
        tree = one.tree
        if tree.input.contract is not None:
            known = tree.input.contract.preferred(one.data[:SELECTOR_BYTES], known)
        reading = inner_reading(one.data, known, one.outer.form, tree.inner, one.beside)
        if tree.inner.is_used_up:
            one.outer.add_note(_TOO_MANY)
        if reading is not None:
            insort(one.owner.nested, Nested(one.path, reading), key=lambda nested: nested.path)
            self._search(tree, one.level + 1, reading)


def inner_reading(data: bytes, known: Sequence[Known], outer: Form, budget: Budget, beside: str = "") -> Reading | None:
    """What a call inside a value of an ``outer`` reading is; None where no text uses all of its bytes.

    A text that stands beside it comes first. Whoever made the call wrote it, and may have mined it for another's selector.
    """
    known = _with_built_in(data[:SELECTOR_BYTES], known)
    tried = [one for one in known if len(one.text) <= MAX_TEXT][:_INNER_TEXTS]
    if beside and all(one.text != beside for one in tried):
        tried.append(Known(beside))
    candidates = [
        _candidate(data[SELECTOR_BYTES:], one, budget) for one in tried if budget.admits(one.text, one.declaration)
    ]
    fitting = [found for found in candidates if found.decodes and not found.attempt.left_over]
    if not fitting:
        return None
    fitting.sort(key=lambda found: found.known.text != beside)
    reading = Reading(Form.CALLDATA, data, texts=max(len(known), len(tried)), candidates=fitting)
    _rank(reading, outer, passed=_passed(known, known, candidates), is_inner=not beside)
    if beside:
        reading.form, reading.data = Form.ARGUMENTS, data[SELECTOR_BYTES:]
        for found in fitting:
            found.reasons += ("its text stands beside it",) if found.known.text == beside else ()
        return reading
    if likely_kind(reading.candidates[0].known) is Kind.ERROR:
        reading.form = Form.REVERT
    return reading


def _with_built_in(hash: bytes, known: Sequence[Known]) -> Sequence[Known]:
    """The texts of a selector, those of the language first."""
    text = BUILT_IN.get(hash)
    return known if text is None else [Known(text, Kind.ERROR), *(one for one in known if one.text != text)]


def _of_contract(input: Input, form: Form, hash: bytes, known: Sequence[Known]) -> Sequence[Known]:
    """The texts of a hash as the input's contract has them. A revert may come from a contract that it calls."""
    if input.contract is None:
        return known
    return (input.contract.preferred if form is Form.REVERT else input.contract.marked)(hash, known)


def _with_given(input: Input, hash: bytes, known: Sequence[Known]) -> Sequence[Known]:
    """The texts to try: those that the input gives, with what is known of them, then the others."""
    if not input.texts:
        return known
    of_text = {one.text: one for one in known}
    given = [_given(text, hash, of_text, is_event=input.form is Form.LOG) for text in input.texts]
    texts = {one.text for one in given}
    return [*given, *(one for one in known if one.text not in texts)]


def _given(text: str, hash: bytes, of_text: Mapping[str, Known], *, is_event: bool) -> Known:
    """A text that somebody gives with the bytes. One that the grammar refuses stays as it is: to try it gives the reason.

    One of another hash, or of none, shows what its types make of the bytes. It is not what was called. Anonymous logs have no
    hash.
    """
    try:
        found = canonicalise_one(text, EVENTS if is_event else FUNCTIONS, Kind.EVENT if is_event else Kind.UNKNOWN)
    except GrammarError:
        return Known(text).of_contract(Membership.OTHER_HASH, "no contract has it, because it is no signature")
    known = of_text.get(found.text, Known(found.text)).declared_as(found.declaration)
    if found.digest.startswith(hash):
        return known
    what = "topic" if is_event else "selector"
    return known.of_contract(Membership.OTHER_HASH, f"its {what} is 0x{found.digest[: len(hash)].hex()}")


def _candidate(arguments: bytes, known: Known, budget: Budget) -> Candidate:
    found = attempt(arguments, known.text, budget)
    note = ""
    if known.text == ERROR and found.reason == UTF8:
        as_bytes = attempt(arguments, "Error(bytes)", budget)
        if as_bytes.values is not None:
            found = as_bytes._replace(text=ERROR)
            note = "the message is not UTF-8, so it is shown as bytes"
    elif known.text == PANIC and found.values:
        note = panic(found.values[0])
    elif known.text in MAY_DELEGATE and found.values:
        note = delegation(known.text, found.values)
    known = known.parsed()
    return Candidate(known, known.named(found), note=note)


def _returned_candidate(data: bytes, returned: Returned, marked: Known, budget: Budget) -> Candidate:
    """What a declaration says of the data; ``marked`` is its text with what the contract says of it."""
    found = attempt(data, returned.types, budget, first=0)
    detail = f"as {returned.types[:_SHOWN_TYPES]}: {found.detail}" if found.detail else ""
    found = found._replace(text=returned.text, types=returned.outputs, detail=detail)
    known = Known(returned.text, Kind.FUNCTION, Witness.DECLARED, returned.declaration)
    known = known.of_contract(marked.membership, marked.why)
    return Candidate(known, found, note=f"as declared: {returned.declaration}" if found.values is not None else "")


def _declared_with(topic: bytes, known: Known, split: Split) -> Known:
    """A text whose declaration has other parameters indexed, with that of a standard where one has these: ERC-20's Transfer
    beside ERC-721's.
    """
    count = len(layout_of(known.text).types)
    declaration = event_declarations(topic).get(tuple(number in split for number in range(count)))
    undeclared = known._replace(declaration="", types=())
    return undeclared if declaration is None else undeclared.declared_as(str(declaration))


def _unindexed(types: Sequence[Type], split: Split | None) -> Sequence[Type]:
    """The types of a log's values as a search for calls takes them: what a topic holds is a word."""
    if not split:
        return types
    word = layout_of("_(bytes32)").types[0]
    return [word if number in split else type for number, type in enumerate(types)]


# Order and confidence.


def _passed(known: Sequence[Known], ranked: Sequence[Known], tried: Iterable[Candidate]) -> str:
    """What is wrong with the text that ranks first; "" where it fits. What the contract says of the texts comes before the
    directory's order, which is ``ranked``.

    Anybody may give a text with the bytes, as in a link: one that the directory lacks ranks last.
    """
    places = {one.text: place for place, one in enumerate(ranked)}
    first = min(known, key=lambda one: (one.membership, places.get(one.text, len(places))), default=None)
    found = [one for one in tried if first is not None and one.known.text == first.text]
    if first is not None and not found:
        return "a text that ranks before it was not tried"
    return "a text that ranks before it does not fit" if found and not found[0].attempt.exact else ""


def _rank(reading: Reading, form: Form, *, passed: str, is_inner: bool = False) -> None:
    """Order the candidates, and say how sure they are. ``form`` tells which kind comes first where texts fit alike."""
    first = {Form.REVERT: Kind.ERROR, Form.CALLDATA: Kind.FUNCTION}.get(form)

    def order(found: Candidate) -> tuple[bool, int, bool, int, bool]:
        return *_misfit(found), first is not None and likely_kind(found.known) is not first

    reading.candidates.sort(key=order)
    rivals = _rivals(reading, (found for found in reading.candidates if found.attempt.exact))
    for number, found in enumerate(reading.candidates):
        if found.decodes:
            found.confidence, found.reasons = _confidence(reading, found, number, rivals, passed, is_inner)


def _rivals(reading: Reading, fitting: Iterable[Candidate]) -> int:
    """How many candidates fit besides the first, as far as the contract does not tell them apart."""
    best = min((found.known.membership for found in reading.candidates), default=Membership.UNKNOWN)
    return sum(found.known.membership is best for found in fitting) - 1


def _rank_returns(reading: Reading, pairs: list[tuple[Candidate, Returned]]) -> None:
    """Order what declarations say: first what encodes to the same bytes, then what is declared most. Few bytes tell one text
    from another here, so one that is probably not meant comes after all others.
    """
    given = {one.text for _, one in pairs if one.is_given}
    doubts = {one.text: doubt_of(reading.hash, found.known, is_given=one.text in given) for found, one in pairs}
    pairs.sort(key=lambda pair: (bool(doubts[pair[1].text]), *_misfit(pair[0]), not pair[1].is_given, -pair[1].count))
    reading.candidates = [found for found, _ in pairs]
    rivals = _rivals(reading, (found for found, one in pairs if found.attempt.exact and not doubts[one.text]))
    for number, (found, one) in enumerate(pairs):
        if found.decodes:
            found.is_ambiguous = number == 0 and rivals > 0 and not one.is_given
            found.confidence, found.reasons = _return_confidence(found, one, doubts[one.text], number, rivals)
    if not reading.data:
        reading.note = NOTHING_RETURNED
    elif not reading.candidates:
        reading.note = "No known declaration says what this function returns."
    elif not reading.candidates[0].decodes:
        only = any(found.decodes for found in reading.candidates)  # then it is in doubt, or it would be the first
        reading.note = f"No known declaration fits{', but one that is probably not meant' if only else ''}."
    if pairs and reading.candidates[0].is_ambiguous:
        reading.note = f"It is ambiguous: {rivals + 1} declarations fit, and the one that is declared most comes first."
    untried = reading.texts - len(pairs)
    if untried:
        reading.add_note(f"{counted(untried, 'known declaration')} {_NOT_TRIED}")


def doubt_of(selector: bytes, known: Known, *, is_given: bool = False) -> str:
    """Why a function was probably not the one that was called; "" where nothing says so."""
    if known.membership is Membership.CANNOT:
        return known.why
    if is_given or known.membership is Membership.HAS:
        return ""
    if not selector:
        return "an anonymous event has no hash that tells it from others"
    if known.witness is Witness.SOLVED:
        return "a search found it, and no source names it"
    if known.mined:
        return f"looks mined: {known.mined}"
    if not is_filtered(selector, known.text):
        return ""
    return f"its selector is that of {canonical()[selector]} of {sources()[selector]}"


def _return_confidence(
    found: Candidate, returned: Returned, doubt: str, number: int, rivals: int
) -> tuple[Confidence, tuple[str, ...]]:
    """How sure a list of returned types is, and why."""
    reasons = ["its declaration is given"] if returned.is_given else []
    if returned.count:
        reasons.append(f"declared {counted(returned.count, 'time')}")
    if doubt or found.known.why:
        reasons.append(doubt or found.known.why)
    if doubt:
        return Confidence.LOW, tuple(reasons)
    if not found.attempt.exact:
        return Confidence.LOW, (*reasons, _inexact(found))
    reasons.append("the values encode to the same bytes")
    if number:
        return Confidence.LOW, (*reasons, "another declaration fits and ranks before it")
    if found.is_ambiguous:
        others = f"{rivals} other {'declaration fits' if rivals == 1 else 'declarations fit'} as well"
        return Confidence.MEDIUM, (*reasons, others)
    return Confidence.HIGH, tuple(reasons)


def _inexact(found: Candidate) -> str:
    """Why a candidate that decodes does not encode to the same bytes."""
    left_over = found.attempt.left_over
    return f"{counted(left_over, 'byte')} left over" if left_over else "the layout is not the encoder's"


def _misfit(found: Candidate) -> tuple[bool, int, bool, int]:
    """How badly a candidate fits its contract and its bytes: lower is better."""
    membership = found.known.membership
    is_out = membership >= Membership.CANNOT or not found.decodes
    return is_out, membership, not found.attempt.exact, found.attempt.left_over


_SURE_BITS = 48
_SURE = {Witness.COMPILED: "compiled into contracts", Witness.DESCRIBED: "described for clear signing"}


def _confidence(
    reading: Reading, found: Candidate, number: int, rivals: int, passed: str, is_inner: bool
) -> tuple[Confidence, tuple[str, ...]]:
    """How sure a candidate is, and why.

    Contracts take bytes that are left over, and old ones dirty padding: with them a mined text can be the only one that fits.
    """
    reasons, hash, text = [], reading.hash, found.known.text
    is_built_in = BUILT_IN.get(hash) == text
    is_defined = is_built_in or is_standard(hash, text)
    if is_defined:
        reasons.append("an error of the language" if is_built_in else f"text of {sources()[hash]}")
    elif found.known.witness in _SURE:
        reasons.append(_SURE[found.known.witness])
    if found.known.why:
        reasons.append(found.known.why)
    if found.known.membership >= Membership.CANNOT:
        return Confidence.LOW, tuple(reasons)
    if not found.attempt.exact:
        reasons.append(_inexact(found))
        is_likely = is_defined and not found.attempt.left_over
        return Confidence.MEDIUM if is_likely else Confidence.LOW, tuple(reasons)
    if number:
        return Confidence.LOW, (*reasons, "another text fits and ranks before it")
    if found.is_ambiguous:
        return Confidence.MEDIUM, (*reasons, "other choices of the indexed parameters fit as well")
    reasons.append("the values encode to the same bytes")
    if found.others:
        reasons.append("other choices of the indexed parameters give improbable values")
    if is_defined or (found.known.witness in _SURE and not passed):
        return Confidence.HIGH, tuple(reasons)
    if doubt := doubt_of(reading.hash, found.known):
        return Confidence.MEDIUM, (*reasons, doubt)
    if rivals > 0:
        return Confidence.MEDIUM, (*reasons, f"{rivals} other {'text fits' if rivals == 1 else 'texts fit'} as well")
    if passed:
        return Confidence.MEDIUM, (*reasons, passed)
    if is_inner and layout_of(text).checked < _SURE_BITS:
        return Confidence.MEDIUM, (*reasons, "its types fit almost any bytes")
    return Confidence.HIGH, tuple(reasons)


def likely_kind(known: Known) -> Kind:
    """The declared kind; without one, what the style guide's spelling of the name says (errors are CapWords)."""
    if known.kind is not Kind.UNKNOWN:
        return known.kind
    return Kind.ERROR if known.text[:1].isupper() and not known.text[:2].isupper() else Kind.FUNCTION


def _by_form(reading: Reading) -> list[Reading]:
    """The reading, or where the form is open one for calls and one for errors: the better one first."""
    if reading.form is not Form.AUTO:
        return [reading]
    errors = [found for found in reading.candidates if likely_kind(found.known) is Kind.ERROR]
    calls = [found for found in reading.candidates if likely_kind(found.known) is not Kind.ERROR]
    split = [(Form.CALLDATA, calls), (Form.REVERT, errors)]
    if not errors or (calls and not calls[0].decodes and not errors[0].decodes):
        split = [(Form.CALLDATA, reading.candidates)]
    elif not calls:
        split = [(Form.REVERT, errors)]
    elif errors[0] is reading.candidates[0]:
        split.reverse()
    return [replace(reading, form=form, candidates=found) for form, found in split]


# What has no candidate.


def _short(reading: Reading) -> list[Reading]:
    """The readings of less than a selector."""
    call = "No data: a plain transfer of value, which `receive` takes."
    raw = f"{counted(len(reading.data), 'byte')}; a selector has {SELECTOR_BYTES}."
    forms = [Form.CALLDATA, Form.REVERT] if reading.form is Form.AUTO else [reading.form]
    if reading.data:
        return [replace(reading, form=forms[0], note=raw)]
    return [replace(reading, form=form, note=EMPTY if form is Form.REVERT else call) for form in forms]


def _unknown(reading: Reading, input: Input) -> str:
    if reading.is_anonymous:
        return "An anonymous event has no hash; its text has to be given."
    if reading.form is Form.LOG and not reading.hash:
        return "A log without topics is of an anonymous event; its text has to be given."
    what = "topic" if reading.form is Form.LOG else "selector"
    note = f"No text with this {what} is known."
    if reading.form is not Form.LOG and reading.data.isascii() and reading.data.decode().isprintable():
        note += f" As text it is {reading.data[:200].decode()!r}."
    return note
