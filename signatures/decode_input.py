"""What people paste and programs send, as inputs to read: hex, the words of a log, JSON as nodes and explorers have it.

An input may have two shapes at once. Four words may be four topics, or three topics and the data. Then there are two
alternatives, and their readings are ranked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from sigdir.signatures.abi_decoder import MAX_BYTES, SELECTOR_BYTES, WORD_BYTES
from sigdir.signatures.bytecode import BadBytecode, bytes_of_hex, is_library, other_machine
from sigdir.signatures.canonicalise import canonicalise_one
from sigdir.signatures.collections import EVENTS, FUNCTIONS
from sigdir.signatures.errors import SigdirError, counted
from sigdir.signatures.evidence import Kind
from sigdir.signatures.grammar import GrammarError
from sigdir.signatures.readings import Form, Input

MAX_TOPICS = 4
MAX_GIVEN_TEXTS = 8
_MAX_GIVEN_CHARACTERS = 8192
_MAX_SHOWN = 80
_TOPIC_FIELDS = ("topic0", "topic1", "topic2", "topic3")
_DATA_FIELDS = ("data", "input", "calldata", "revert")
_INPUT_FIELDS = ("topics", *_TOPIC_FIELDS, *_DATA_FIELDS)


class BadInput(SigdirError):
    """The input cannot be read; ``field`` is the one that is wrong."""

    def __init__(self, problem: str, field: str = "data") -> None:
        super().__init__(f"{field}: {problem}")
        self.problem, self.field = problem, field


def shown(value: Any) -> str:
    """A value that is wrong, as JSON has it; a text in single quotes."""
    return repr(value[:_MAX_SHOWN]) if isinstance(value, str) else json.dumps(value, default=str)[:_MAX_SHOWN]


def hex_bytes(text: str, field: str = "data") -> bytes:
    """The bytes of hex digits, with 0x or without; white space is left out. Raises BadInput."""
    with suppress(ValueError):  # most texts need no second look
        found = bytes.fromhex(text[2:] if text[:2] in ("0x", "0X") else text)
        if len(found) <= MAX_BYTES:
            return found
    digits = "".join(text.split())
    digits = digits[2:] if digits[:2] in ("0x", "0X") else digits
    if len(digits) > 2 * MAX_BYTES:
        raise BadInput(f"{len(digits) // 2} bytes; at most {MAX_BYTES} are decoded", field)
    wrong = re.search("[^0-9a-fA-F]", digits)
    if wrong:
        raise BadInput(f"{wrong[0]!a} at digit {wrong.start() + 1} is not a hex digit", field)
    if len(digits) % 2:
        raise BadInput(f"an odd number of hex digits: {len(digits)}", field)
    return bytes.fromhex(digits)


def topics_of_hex(topics: Iterable[str]) -> list[bytes]:
    """The bytes of a log's topics; raises BadInput, which says which of them is wrong."""
    found = []
    for number, topic in enumerate(topics):
        try:
            found.append(hex_bytes(topic))
        except BadInput as error:
            raise BadInput(f"topic {number}: {error.problem}", "topics") from None
    return found


def code_input(text: str, field: str = "code") -> Input:
    """A contract's code as hex digits; the addresses of libraries that are not linked are zeros. Raises BadInput."""
    try:
        code, libraries = bytes_of_hex("".join(text.split()), MAX_BYTES)
    except BadBytecode as error:
        raise BadInput(str(error), field) from None
    return Input(Form.CODE, code, libraries=libraries)


def log_input(topics: list[bytes], data: bytes, *, anonymous: bool = False, texts: tuple[str, ...] = ()) -> Input:
    """A log; raises BadInput where it has too many topics, or one that is no word.

    It is ``anonymous`` where one of its texts says so, too.
    """
    if len(topics) > MAX_TOPICS:
        raise BadInput(f"{len(topics)} topics; a log has at most {MAX_TOPICS}", "topics")
    for number, topic in enumerate(topics):
        if len(topic) != WORD_BYTES:
            raise BadInput(f"topic {number} has {counted(len(topic), 'byte')}, not {WORD_BYTES}", "topics")
    return Input(Form.LOG, data, tuple(topics), anonymous or any(map(_is_anonymous, texts)), texts)


def return_inputs(data: bytes, selector: Any, texts: tuple[str, ...] = ()) -> list[Input]:
    """What a call returned, and where it may be a revert in its place that too. The call has a selector, as hex digits, or
    a text, canonical or as declared. Raises BadInput.
    """
    if not isinstance(selector, str):
        raise BadInput("a text of 8 hex digits", "selector")
    called = hex_bytes(selector, "selector")
    if called and len(called) != SELECTOR_BYTES:
        raise BadInput(f"{counted(len(called), 'byte')}; a selector has {SELECTOR_BYTES}", "selector")
    if not called and not texts:
        raise BadInput("what a call returned needs the selector or the text of the call", "selector")
    for text in texts:
        own = _selector_of(text)
        called = called or own
        if own != called:
            raise BadInput(f"{shown(text)} has the selector 0x{own.hex()}, not 0x{called.hex()}", "texts")
    found = [Input(Form.RETURN, data, texts=texts, selector=called)]
    # Returned values are whole words, but for values that a contract packs.
    is_revert = len(data) % WORD_BYTES == SELECTOR_BYTES
    return [*found, Input(Form.REVERT, data)] if is_revert else found


def _selector_of(text: str) -> bytes:
    """The selector of a function, canonical or as declared; raises BadInput."""
    try:
        return canonicalise_one(text, FUNCTIONS, Kind.UNKNOWN).digest[:SELECTOR_BYTES]
    except GrammarError as error:
        raise BadInput(str(error), "texts") from None


def _is_anonymous(text: str) -> bool:
    """Whether a declaration ends with ``anonymous``."""
    with suppress(GrammarError):
        return canonicalise_one(text, EVENTS, Kind.EVENT).declaration.endswith(" anonymous")
    return False


_TOKEN = re.compile(r"0[xX][0-9a-fA-F]*")
_LABELS = re.compile(r"""(?:[\s,;:\[\]"']|topics?|data|[0-3])*+""", re.IGNORECASE)


def inputs_of_text(text: str, form: Form = Form.AUTO) -> list[Input]:
    """The alternatives of a text that was pasted; raises BadInput. ``form`` says what it is, if that is known.

    Texts to try stand before the bytes, each on a line or with a semicolon behind it, and the word ``anonymous`` where
    the log has no topic of its event: ``event LogNote(bytes4 indexed sig) anonymous; 0x12... 0x34...``.
    """
    text = text.strip()
    if text[:1] in ("{", "["):
        return _inputs_of_json(text, form)
    if "(" not in text and "anonymous" not in text:
        return _inputs_of_hex(text, form)
    texts, anonymous, rest = _without_texts(text)
    if anonymous and form is Form.AUTO:
        form = Form.LOG
    if not rest:
        raise BadInput("the bytes are missing; a text to try stands before them")
    found = _inputs_of_hex(rest, form, anonymous=anonymous)
    found = [one._replace(texts=texts, anonymous=anonymous and one.form is Form.LOG) for one in found]
    return [one for one in found if len(one.topics) in _topic_counts(texts, anonymous=anonymous)] or found


def _topic_counts(texts: tuple[str, ...], *, anonymous: bool) -> frozenset[int]:
    """How many topics the logs of declared events have."""
    return frozenset(len(re.findall(r"\bindexed\b", text)) + (not anonymous) for text in texts)


_LINES = re.compile(r";|\n|(?<!\s)\s++(?=0[xX])")
_TO_PARENTHESIS = re.compile(r"[^()]*+([()]|\Z)")


def _without_texts(text: str) -> tuple[tuple[str, ...], bool, str]:
    """The texts to try, whether the log is anonymous, and what is left: the bytes."""
    # A declaration may have line ends between its parentheses.
    joined = _TO_PARENTHESIS.sub(lambda part: part[0].replace("\n", " ") if part[1] == ")" else part[0], text)
    lines = list(filter(None, map(str.strip, _LINES.split(joined))))
    texts = [line for line in lines if "(" in line]
    rest = [line for line in lines if "(" not in line and line.lower() != "anonymous"]
    anonymous = any(line.lower() == "anonymous" or _is_anonymous(line) for line in lines)
    return texts_to_try(texts), anonymous, " ".join(rest)


def _inputs_of_hex(text: str, form: Form, *, anonymous: bool = False) -> list[Input]:
    tokens = text.split()
    words = [token for token in tokens if token[:2] in ("0x", "0X")]
    if form is Form.LOG or (form is Form.AUTO and len(words) > 1):
        return _inputs_of_words(text, anonymous=anonymous)
    if form is Form.AUTO and "__" in text and is_code(hex_bytes(text[:_CODE_HEAD])):
        return [code_input(text, "data")]
    return [_input_of_bytes(hex_bytes(text), form)]


def _inputs_of_words(text: str, *, anonymous: bool) -> list[Input]:
    """A log as its words, each with 0x; names before them (``data:``) are left out. One without topics is anonymous."""
    rest = _TOKEN.sub(" ", text)
    parts = [hex_bytes(part) for part in _TOKEN.findall(text)]
    if not parts or not _LABELS.fullmatch(rest):
        raise BadInput("a log is its topics and its data, each with 0x and without space inside")
    alternatives = [(parts[:-1], parts[-1])] if len(parts) > 1 or anonymous else []
    alternatives.append((parts, b""))
    logs = [
        Input(Form.LOG, data, tuple(topics)) for topics, data in alternatives
        if len(topics) <= MAX_TOPICS and all(len(topic) == WORD_BYTES for topic in topics)
    ]  # fmt: skip
    return logs or [log_input(parts[:-1], parts[-1])]


def _input_of_bytes(data: bytes, form: Form) -> Input:
    if form in (Form.AUTO, Form.CALLDATA) and 0 < len(data) < SELECTOR_BYTES:
        raise BadInput(f"{counted(len(data), 'byte')}; a selector has {SELECTOR_BYTES}")
    if form is not Form.AUTO:
        return Input(form, data)
    if is_code(data) or other_machine(data):
        return code_input(data.hex(), "data")
    return Input(Form.LOG, b"", (data,)) if len(data) == WORD_BYTES else Input(Form.AUTO, data)


_CODE_HEAD = 10  # digits and 0x: enough to tell what most code begins with
_CODE = tuple(
    map(bytes.fromhex, ["60806040", "60606040", "60a06040", "60c06040", "60e06040", "610100", "363d3d37", "3d602d80", "ef00"])
)  # fmt: skip


def is_code(data: bytes) -> bool:
    """Whether bytes begin as contract code does: solc's memory pointer, a library, Vyper's and proxies' opcodes, EOF."""
    return (
        data.startswith(_CODE)
        or is_library(data)
        or (data[:1] in (b"\x5f", b"\x60") and len(data) % WORD_BYTES != 4 and len(data) > WORD_BYTES)
    )


def _inputs_of_json(text: str, form: Form) -> list[Input]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInput(f"not JSON: {error}") from None
    value = _only(value)
    fields = _unwrapped(value) if isinstance(value, dict) else {}
    if fields.keys().isdisjoint(_INPUT_FIELDS):
        raise BadInput(_NO_INPUT)
    return inputs_of_fields(fields, None if form is Form.AUTO else form)


_NO_INPUT = "JSON of one log or transaction is an object with topics and data, or input, or a node's answer with one"
_ANSWER_FIELDS = ("jsonrpc", "id", "result", "error")


def _unwrapped(fields: Mapping[str, Any]) -> Mapping[str, Any]:
    """The fields of what a node's answer (JSON-RPC) has, a revert in its error too, and those beside it. Raises BadInput."""
    if "jsonrpc" not in fields:
        return fields
    found = _only(fields.get("result") or fields.get("error"))
    if isinstance(found, str):
        found = {"data": found}
    if not isinstance(found, dict):
        raise BadInput(_NO_INPUT)
    return found | {name: value for name, value in fields.items() if name not in _ANSWER_FIELDS}


def _only(value: Any) -> Any:
    """The item of a list of one; anything else as it is."""
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def inputs_of_fields(fields: Mapping[str, Any], form: Form | None = None) -> list[Input]:
    """The alternatives of an object: a log has ``topics`` (or ``topic0`` ...) and ``data``, anything else ``data``.

    ``as`` says what the data is, else its shape does. ``input`` and ``calldata`` are other names of ``data``: of a call
    the first counts that is not empty. A log, or what a call returned, may have empty ``data`` beside the call's ``input``. An
    anonymous log has ``texts``, and ``anonymous`` where none of them says it. What a call returned has the ``selector``
    of the call, or ``texts``. The object may be a node's answer with one of these. Raises BadInput.
    """
    fields = _unwrapped(fields)
    form = form or _form_of(fields)
    topics = _topics_of(fields)
    given = _texts_of(fields)
    names = [name for name in _DATA_FIELDS if fields.get(name) is not None]
    filled = [name for name in names if not _is_empty(fields[name])] if topics is None and form in _CALLS else []
    name = next(iter(filled or names), None)
    digits = [str(fields[one]).strip().lower().removeprefix("0x") for one in filled]
    for other, those in zip(filled[1:], digits[1:], strict=False):  # a wallet may send the one, and ask about the other
        if other != "revert" and those != digits[0]:
            raise BadInput(f"it differs from {filled[0]}, and a call has one of them", other)
    if topics is None and name is None:
        raise BadInput("This field is required.")
    text = fields[name] if name else ""
    if not isinstance(text, str):
        raise BadInput("Not a valid string.", name or "data")
    if form is Form.RETURN and topics is None:
        return return_inputs(hex_bytes(text, name or "data"), fields.get("selector", ""), given)
    if topics is not None:
        if form not in (Form.AUTO, Form.LOG):
            raise BadInput("only a log has topics", "topics")
        anonymous = fields.get("anonymous") is True
        return [log_input(topics, hex_bytes(text, name or "data"), anonymous=anonymous, texts=given)]
    if form is Form.AUTO and name in ("calldata", "revert"):
        form = Form(name)
    return [one._replace(texts=given) if given else one for one in inputs_of_text(text, form)]


def _is_empty(value: Any) -> bool:
    return isinstance(value, str) and value.strip() in ("", "0x", "0X")


def _form_of(fields: Mapping[str, Any]) -> Form:
    word = fields.get("as", Form.AUTO)
    if word not in FORMS:
        raise BadInput(f"{shown(word)} is none of {', '.join(FORMS)}", "as")
    return Form(word)


_CALLS = (Form.AUTO, Form.CALLDATA)
FORMS = (Form.AUTO, Form.CALLDATA, Form.LOG, Form.REVERT, Form.RETURN)
"""What an input may be said to be."""


def _topics_of(fields: Mapping[str, Any]) -> list[bytes] | None:
    """The topics, in a list or in fields of their own; None if the object is no log."""
    listed = fields.get("topics")
    if listed is None:
        listed = [fields[name] for name in _TOPIC_FIELDS if fields.get(name) not in (None, "")] or None
    if listed is None:
        return None
    if not isinstance(listed, list) or not all(isinstance(topic, str) for topic in listed):
        raise BadInput("a list of texts, each 0x and 64 digits", "topics")
    return topics_of_hex(listed[: MAX_TOPICS + 1])


def _texts_of(fields: Mapping[str, Any]) -> tuple[str, ...]:
    given = fields.get("texts", [])
    if not isinstance(given, list) or not all(isinstance(text, str) for text in given):
        raise BadInput("a list of canonical texts", "texts")
    return texts_to_try(given)


def texts_to_try(given: list[str]) -> tuple[str, ...]:
    """Texts that somebody wants to be tried, without blank ones; raises BadInput where they are too many or too long."""
    if len(given) > MAX_GIVEN_TEXTS or any(len(text) > _MAX_GIVEN_CHARACTERS for text in given):
        raise BadInput(f"at most {MAX_GIVEN_TEXTS} texts of {_MAX_GIVEN_CHARACTERS} characters", "texts")
    return tuple(filter(str.strip, given))
