"""Lookups of whole hashes in 4byte.directory's lists by evidence, for clients that show the first text of an answer."""

from __future__ import annotations

import numpy as np

from sigdir.serve.lists.paging import Page, page_of_selections
from sigdir.serve.lists.query import Query
from sigdir.serve.lists.selection import Selection, selections_of
from sigdir.signatures.collections import Collection
from sigdir.signatures.standards import canonical
from sigdir.warehouse.index.ranked import RankedRow, ranked_rows
from sigdir.warehouse.index.view import View


def ranked_page(view: View, collection: Collection, query: Query, url: str) -> Page:
    """The page of a lookup: the texts of each hash in the order of their rank, without those that are filtered.

    A client that names an order gets it, and pages by cursor go by id. ``filter=false`` keeps every text. ``url`` and
    errors are those of ``page_of``.
    """
    hashes = query.filter.looked_up(collection.hash_bytes) if query.filter is not None else []
    if len(hashes) == 1:
        selections = selections_of(view, collection, query.filter)
        if _is_one_text(selections) and not (query.is_filtering and _is_another(hashes[0], selections[0])):
            return page_of_selections(selections, collection, query, url)
    rows = [row for hash in hashes for row in ranked_rows(view, collection, hash)]
    if query.is_filtering:
        rows = [row for row in rows if not row.is_filtered]
    if query.is_ordered or query.cursor is not None:
        rows.sort(key=lambda row: row.id)
    else:
        query = query._replace(oldest_first=True)  # in the order in which the selections stand
    return page_of_selections(list(map(_selection, rows)), collection, query, url)


def _is_one_text(selections: list[Selection]) -> bool:
    """Whether a hash has one text, as all but one in ten thousand have."""
    return len(selections) == 1 and selections[0].count == 1


def _is_another(hash: bytes, selection: Selection) -> bool:
    """Whether a hash's only text is not the standard's."""
    standard = canonical().get(hash)
    if standard is None or selection.rows is None:
        return False
    return selection.segment.text_at(int(selection.rows[0])) != standard


def _selection(row: RankedRow) -> Selection:
    return Selection(row.segment, 0, row.segment.rows, np.array([row.row], np.int64))
