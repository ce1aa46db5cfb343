"""One HTTP GET over a connection of its own, with a limit on time and size. Sends no credentials and follows no redirect.

Owns the few lines of HTTP/1.1 a prober needs: a status line, headers, a body that ends with its length or the connection. Called
by the prober.
"""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

HEAD_BYTES_MAX: Final = 16 << 10
BODY_BYTES_MAX: Final = 64 << 10


class Got(NamedTuple):
    """`error` empty: the whole answer came. One of Refused, Timeout, Broken, NotHttp, TooLarge else."""

    status: int = 0
    body: bytes = b""
    error: str = ""

    @property
    def success(self) -> bool:
        return not self.error and 200 <= self.status < 400


async def get(address: str, port: int, path: str, timeout_s: float, host: str = "") -> Got:
    try:
        async with asyncio.timeout(timeout_s):
            return await _get(address, port, path, host or address)
    except TimeoutError:
        return Got(error="Timeout")
    except ConnectionRefusedError:
        return Got(error="Refused")
    except (asyncio.LimitOverrunError, ValueError):
        return Got(error="NotHttp")
    except (OSError, asyncio.IncompleteReadError):
        return Got(error="Broken")


async def _get(address: str, port: int, path: str, host: str) -> Got:
    reader, writer = await asyncio.open_connection(address, port, limit=HEAD_BYTES_MAX)
    try:
        shown = f"[{host}]" if ":" in host else host
        lines = (
            f"GET {path} HTTP/1.1",
            f"Host: {shown}:{port}",
            "User-Agent: fairlead-probe",
            "Accept: */*",
            "Connection: close",
        )
        writer.write("".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii"))
        await writer.drain()
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, _, rest = head[0].partition(" ")
        if not version.startswith("HTTP/1.") or not rest[:3].isdecimal():
            return Got(error="NotHttp")
        lengths = [line.partition(":")[2].strip() for line in head[1:] if line.lower().startswith("content-length:")]
        length = int(lengths[0]) if lengths else None
        if length is not None and not 0 <= length <= BODY_BYTES_MAX:
            return Got(int(rest[:3]), error="TooLarge")
        body = await (reader.readexactly(length) if length is not None else _to_the_end(reader))
        return Got(int(rest[:3]), body, "" if len(body) <= BODY_BYTES_MAX else "TooLarge")
    finally:
        writer.transport.abort()  # at once: a prober that lingers would run out of ports


async def _to_the_end(reader: asyncio.StreamReader) -> bytes:
    body = b""
    while len(body) <= BODY_BYTES_MAX:
        part = await reader.read(BODY_BYTES_MAX)
        if not part:
            break
        body += part
    return body
