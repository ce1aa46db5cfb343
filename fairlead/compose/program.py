"""What every long-running program does with its process: where its log goes, and which signals end it. Knows none of them: each
imports what it needs and no other, because a host starts many agents, and an agent needs a tenth of what a server does."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import Callable

from fairlead.wire.log_lines import JsonLines


def stop_on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for wanted in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(wanted, stop)


def log_to_stderr(**about: str) -> None:
    """For people at a terminal in words, for everybody else a line of JSON each; `about` is what this process is."""
    handler = logging.StreamHandler(sys.stderr)
    words = logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    handler.setFormatter(words if sys.stderr.isatty() else JsonLines(about))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
