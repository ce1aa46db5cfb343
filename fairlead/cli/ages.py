"""Instants as people read them: `12s`, `5m`, `3h20m`, `2d`. For display only; nothing is decided by it."""

from __future__ import annotations

from datetime import datetime


def age(text: str, now_s: float) -> str:
    """How long ago an RFC 3339 time was."""
    try:
        seconds = int(now_s - datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except ValueError:
        return "<unknown>"
    return span(max(0, seconds))


def span(seconds: int) -> str:
    if seconds < 120:
        return f"{seconds}s"
    if seconds < 3600:
        return f"{seconds // 60}m"
    if seconds < 48 * 3600:
        minutes = seconds % 3600 // 60
        return f"{seconds // 3600}h{minutes}m" if minutes and seconds < 8 * 3600 else f"{seconds // 3600}h"
    return f"{seconds // 86400}d"
