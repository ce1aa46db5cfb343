"""What was read from closed files lately, bounded in bytes. Owns no file; called by segment.py and checkpoint.py.

Closed files never change, so nothing here is ever stale; a trimmed file's entries simply age out.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, TypeVar

T = TypeVar("T")


class Cache:
    def __init__(self, limit_bytes: int) -> None:
        self._limit_bytes = limit_bytes
        self._entries: OrderedDict[tuple[str, str, int], tuple[Any, int]] = OrderedDict()
        self._lock = Lock()
        self.bytes = 0
        self.misses = 0

    def get(self, key: tuple[str, str, int], load: Callable[[], tuple[T, int]]) -> T:
        """The entry (file, part, number). `load` gives value and size; it runs outside the lock, so two threads that miss
        together both read, which costs less than one waiting for the other's disk."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is not None:
                self._entries.move_to_end(key)
                value: T = entry[0]
                return value
            self.misses += 1
        value, size = load()
        with self._lock:
            if key not in self._entries:
                self._entries[key] = (value, size)
                self.bytes += size
            while self.bytes > self._limit_bytes and len(self._entries) > 1:
                _, (_, dropped) = self._entries.popitem(last=False)
                self.bytes -= dropped
        return value
