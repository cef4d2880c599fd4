"""The order by rank of the texts of each selector that has several, for exports with one text a selector or joined texts."""

from __future__ import annotations

from sigdir.warehouse import Warehouse

Order = dict[bytes, list[tuple[int, str]]]
"""Id and text of each text of a selector, the best first."""

_RIVALS = "SELECT hash, id, text_signature FROM parts.rivals ORDER BY hash, position"


def ranked_order(warehouse: Warehouse) -> Order:
    """The selectors with several texts; raises UnreadableWarehouse. Of 10 M texts they are some twenty thousand."""
    order: Order = {}
    for hash, id, text in warehouse.sql(_RIVALS).rows():
        order.setdefault(hash, []).append((id, text))
    return order
