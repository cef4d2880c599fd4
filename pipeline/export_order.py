"""The order of the texts of each selector that has several, for exports with one text a selector or joined texts."""

from __future__ import annotations

from sigdir.signatures.standards import is_filtered
from sigdir.warehouse import Warehouse

Order = dict[bytes, list[tuple[int, str]]]
"""Id and text of each text of a selector, the best first."""

_BY_RANK = "SELECT hash, id, text_signature FROM parts.rivals ORDER BY hash, position"
_BY_AGE = """
    SELECT hash, id, text_signature FROM signatures
    WHERE hash IN (SELECT hash FROM signatures GROUP BY hash HAVING count(*) > 1) ORDER BY hash, id
"""


def order_of_texts(warehouse: Warehouse, by_rank: bool) -> Order:
    """The selectors with several texts, of 10 M texts some twenty thousand: by rank, or the standard's text first, then the
    oldest. Raises UnreadableWarehouse.
    """
    order: Order = {}
    for hash, id, text in warehouse.sql(_BY_RANK if by_rank else _BY_AGE).rows():
        order.setdefault(hash, []).append((id, text))
    if not by_rank:
        for hash, texts in order.items():
            texts.sort(key=lambda one, hash=hash: is_filtered(hash, one[1]))  # type: ignore[misc]
    return order
