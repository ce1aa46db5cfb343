"""A log record becomes one line of JSON, whatever is in it."""

from __future__ import annotations

import logging
import sys
from typing import Any

import msgspec

from fairlead.wire.log_lines import JsonLines


def line(text: str, *arguments: Any, about: dict[str, str] | None = None, error: bool = False, **extra: Any) -> dict[str, Any]:
    record = logging.LogRecord("fairlead.x", logging.WARNING, "x.py", 1, text, arguments, sys.exc_info() if error else None)
    record.__dict__.update(extra)
    written = JsonLines(about or {}).format(record)
    assert "\n" not in written, "a collector reads lines"
    found: dict[str, Any] = msgspec.json.decode(written)
    return found


def test_a_record_has_its_message_and_the_ids_it_was_given() -> None:
    got = line("%s is adopted", "risk_api-0", about={"plane": "region", "region": "us", "node": ""}, tenant="risk", generation=7)
    assert got.pop("time").endswith("Z")
    assert got == {
        "level": "WARNING", "logger": "fairlead.x", "message": "risk_api-0 is adopted", "plane": "region", "region": "us",
        "tenant": "risk", "generation": 7,
    }  # fmt: skip


def test_a_fault_has_its_trace_and_stays_one_line() -> None:
    try:
        raise ValueError("two\nlines")
    except ValueError:
        got = line("it failed:\n%r", "\x00\udcff", error=True)
    assert "ValueError: two\nlines" in got["error"]
    assert got["message"].startswith("it failed:\n")


def test_what_json_does_not_know_is_told_in_words() -> None:
    assert line("x", key=("risk", "api"), where=None)["key"] == "('risk', 'api')"
