"""What the client of the resource API asks of whoever carries its requests: one request, one answer, whole or in pieces.

Owns the two ways in which that fails, because everything the client promises about a write hangs on telling them apart. Never
repeats anything. Implemented by http1.py over sockets, and by the simulator over its own network.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol


class CannotConnect(Exception):
    """Nothing was sent. `untrusted`: somebody is there, and not somebody we trust."""

    def __init__(self, message: str, untrusted: bool = False) -> None:
        super().__init__(message)
        self.untrusted = untrusted


class Dropped(Exception):
    """The connection broke, or what came over it was no HTTP, after something may have been sent."""


class Response(Protocol):
    """One answer. Its body is read once: whole, or in pieces as they come."""

    @property
    def status(self) -> int: ...

    def header(self, name: str) -> str: ...

    def headers(self, name: str) -> list[str]: ...

    async def read(self) -> bytes: ...

    def pieces(self) -> AsyncIterator[bytes]: ...


class Transport(Protocol):
    """The way to one server."""

    def request(
        self, method: str, path: str, params: Mapping[str, str], headers: Mapping[str, str], body: bytes
    ) -> AbstractAsyncContextManager[Response]:
        """To be entered. Raises CannotConnect before anything was sent, and Dropped after."""
        ...

    async def close(self) -> None: ...
