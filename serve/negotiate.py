"""Which of the two representations a request gets, as the contract says."""

from __future__ import annotations

from functools import lru_cache

from serve.errors import detail, not_found

JSON, HTML = "application/json", "text/html"


@lru_cache(maxsize=1024)
def representation(accept: str, format: str) -> str:
    """JSON or HTML; raises Refusal, 404 for an unknown ``format`` and 406 for an ``Accept`` of neither.

    ``format=json`` leaves JSON alone; ``format=api`` gives HTML to who prefers it and JSON to others.
    """
    if format not in ("", "json", "api"):
        raise not_found()
    json_quality, html_quality = _quality(accept, JSON), _quality(accept, HTML)
    if format == "json":
        html_quality = 0.0
    elif format == "api" and html_quality <= json_quality:
        return JSON
    if json_quality <= 0 and html_quality <= 0:
        raise detail(406, "Could not satisfy the request Accept header.")
    return HTML if html_quality > json_quality else JSON


def _quality(accept: str, kind: str) -> float:
    """How much a type is wanted: its quality, and among equal ones how closely it is named."""
    best = (-1, 0.0)
    for part in (accept or "*/*").split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        closeness = {kind: 2, kind.split("/", maxsplit=1)[0] + "/*": 1, "*/*": 0, "*": 0}.get(name.lower(), -1)
        if closeness > best[0]:
            best = (closeness, _q(parameters))
    # Closeness decides between types of equal quality; a browser names HTML and takes anything else.
    return best[1] + best[0] * 1e-6 if best[0] >= 0 and best[1] > 0 else 0.0


def _q(parameters: list[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0


@lru_cache(maxsize=256)
def takes_gzip(accept_encoding: str) -> bool:
    """Whether gzip is named and not ruled out."""
    for part in accept_encoding.split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        if name.lower() == "gzip":
            return _q(parameters) > 0
    return False
