"""Whether a request gets JSON or HTML, by the rules of 4byte.directory's API."""

from __future__ import annotations

from sigdir.serve.http.errors import detail, not_found

JSON, HTML, NDJSON = "application/json", "text/html", "application/x-ndjson"


MAX_CHARACTERS = 1000
"""Of Accept and Accept-Encoding; what follows is not read. 60,000 commas took 0.1 s. Browsers send 200."""


def representation(accept: str, format: str) -> str:
    """JSON or HTML; raises HttpError, 404 for an unknown ``format`` and 406 for an ``Accept`` of neither.

    ``format=json`` rules out HTML. ``format=api`` gives HTML to a client that prefers it, and JSON to all others.
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


def is_list_wanted(accept: str, format: str) -> bool:
    """Whether an answer of lines shall be one JSON list; raises HttpError, 404 for an unknown ``format``.

    ``format`` decides, ``json`` or ``ndjson``; without it an ``Accept`` that prefers JSON to lines.
    """
    if format not in ("", "json", "ndjson"):
        raise not_found()
    return format == "json" or (not format and _quality(accept, JSON) > _quality(accept, NDJSON))


def _quality(accept: str, kind: str) -> float:
    """The quality of a type (RFC 9110, 12.5.1), plus up to 2e-6 for how exactly Accept names it."""
    best = (-1, 0.0)
    for part in (accept or "*/*")[:MAX_CHARACTERS].split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        closeness = {kind: 2, kind.split("/", maxsplit=1)[0] + "/*": 1, "*/*": 0, "*": 0}.get(name.lower(), -1)
        if closeness > best[0]:
            best = (closeness, quality_parameter(parameters))
    # At equal quality the exact name wins: a browser names text/html and takes anything else as */*.
    return best[1] + best[0] * 1e-6 if best[0] >= 0 and best[1] > 0 else 0.0


def quality_parameter(parameters: list[str]) -> float:
    """The value of ``q`` among the parameters of a type or coding, from 0 to 1; 1 without one, 0 for no number."""
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return min(1.0, max(0.0, float(value)))
            except ValueError:
                return 0.0
    return 1.0
