"""A log record as one line of JSON, with the ids that its writer gave as `extra`. Used by the programs (fairlead/compose).

Fields: time, level, logger, message; `error` with the trace of an exception; then what the program is (plane, region, node) and
what the record is about (tenant, slot, token, uid, generation, controller, key), each under its own name. No level and no time
is made here.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

from fairlead.wire.json_codec import encode

_OWN: Final = frozenset(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    def __init__(self, about: Mapping[str, str] = {}) -> None:
        """`about`: what every record of this process says; empty values are left out."""
        super().__init__()
        self._about = {name: value for name, value in about.items() if value}

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **self._about,
            **{name: _plain(value) for name, value in record.__dict__.items() if name not in _OWN},
        }
        if record.exc_info:
            line["error"] = self.formatException(record.exc_info)
        return encode(line).decode()


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool | None) else str(value)
