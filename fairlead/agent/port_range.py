"""Ports for instances: from one range, none twice, none that somebody else listens on. Called by fairlead/agent/launching.py."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Iterable


class NoPort(Exception):
    """The range is used up."""


class PortRange:
    def __init__(self, first: int, last: int, begin: int = 0) -> None:
        """`begin`: where to look first. Agents of several platforms on one machine share a range, and one that has just been
        given a port does not listen there yet: they had better not all begin with the same."""
        self._first, self._last = first, last
        self._next = begin if first <= begin <= last else first
        self._taken: Counter[int] = Counter()  # how often: a port that a template names may have been given to another

    def take(self) -> int:
        """The next free one, going round, so that a port just given back is not the next to be given out."""
        for _ in range(self._last - self._first + 1):
            port = self._next
            self._next = port + 1 if port < self._last else self._first
            if port not in self._taken and _is_free(port):
                self._taken[port] += 1
                return port
        raise NoPort(f"every port from {self._first} to {self._last} is taken")

    def hold(self, ports: Iterable[int]) -> None:
        self._taken.update(ports)

    def give_back(self, ports: Iterable[int]) -> None:
        """Each as often as it was taken or held: it is free when the last has given it back."""
        self._taken -= Counter(ports)


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError:
            return False
    return True
