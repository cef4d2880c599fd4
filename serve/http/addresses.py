"""What one client address may have of a worker: it must not keep the others waiting.

Addresses of this machine are not counted, because a proxy and the operator's own tools use them.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import lru_cache
from ipaddress import IPv4Address, ip_address
from typing import Generic, TypeVar

_IPV6_HOST_BITS = 64

Task = TypeVar("Task")
Item = TypeVar("Item")


@lru_cache(1024)
def counted_address(address: str) -> str:
    """The address by which a client is counted, an IPv6 client by its network of 64 bits; empty if it is not counted."""
    try:
        ip = ip_address(address.partition("%")[0])
    except ValueError:  # a socket of this machine has no address
        return ""
    ip = getattr(ip, "ipv4_mapped", None) or ip
    if str(ip) in ("127.0.0.1", "::1"):
        return ""
    return str(ip) if isinstance(ip, IPv4Address) else f"{int(ip) >> _IPV6_HOST_BITS:x}"


class AddressShares(Generic[Task]):
    """At most ``share`` tasks of an address are in work; its others wait in line. A share of 0 is no limit."""

    def __init__(self, share: int) -> None:
        self._share = share
        self._in_work: Counter[str] = Counter()
        self._waiting: dict[str, deque[Task]] = {}
        self._lock = threading.Lock()

    def take(self, address: str) -> bool:
        """Whether the address may have one task more, which ``end`` then ends."""
        return self._take(address, None)

    def begin(self, address: str, task: Task) -> bool:
        """As ``take``. A task that must wait is kept until an ``end`` gives it back."""
        return self._take(address, task)

    def end(self, address: str) -> Task | None:
        """A task of the address has ended. Gives the next one, which is in work from now on."""
        counted = self._counted(address)
        if not counted:
            return None
        with self._lock:
            waiting = self._waiting.get(counted)
            if waiting:
                task = waiting.popleft()
                if not waiting:
                    del self._waiting[counted]
                return task
            self._in_work[counted] -= 1
            if not self._in_work[counted]:
                del self._in_work[counted]
        return None

    def _take(self, address: str, task: Task | None) -> bool:
        counted = self._counted(address)
        if not counted:
            return True
        with self._lock:
            if self._in_work[counted] < self._share:
                self._in_work[counted] += 1
                return True
            if task is not None:
                self._waiting.setdefault(counted, deque()).append(task)
            return False

    def _counted(self, address: str) -> str:
        return counted_address(address) if self._share else ""


def beyond_share(
    items: Iterable[Item], share: int, address: Callable[[Item], str], idle: Callable[[Item], float]
) -> list[Item]:
    """Of each address that has more than ``share``, the items that are idle for longest; none if ``share`` is 0."""
    by_address: dict[str, list[Item]] = {}
    if share:
        for item in items:
            if counted := counted_address(address(item)):
                by_address.setdefault(counted, []).append(item)
    many = [found for found in by_address.values() if len(found) > share]
    return [item for found in many for item in sorted(found, key=idle, reverse=True)[: len(found) - share]]
