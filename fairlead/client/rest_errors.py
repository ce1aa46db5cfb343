"""What can go wrong between a client and the resource API, as types: a caller matches on them, the command line makes exit codes.

Owns the reading of a Status. Never retries anything. Raised by rest.py and rest_watch.py.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple


class Cause(NamedTuple):
    """One thing the server found wrong, and where in the object."""

    field: str
    message: str
    reason: str = ""


class ApiError(Exception):
    """The server answered, and the answer is no. Nothing was changed, unless there is an `in_doubt_key`: then an earlier attempt
    of the same write had no answer, may still be under way, and only the receipt of that key will tell."""

    in_doubt_key = ""

    def __init__(self, code: int, reason: str, message: str, causes: tuple[Cause, ...] = (), retry_after_s: float = 0.0) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.causes = causes
        self.retry_after_s = retry_after_s


class NotFound(ApiError):
    """404: no such object, kind or tenant."""


class Conflict(ApiError):
    """409: it exists already, somebody changed it in between, or its present state forbids this."""


class Denied(ApiError):
    """401 or 403: not known, not allowed, or fenced out."""


class Invalid(ApiError):
    """400, 413, 415 or 422: the request itself is wrong; `causes` name the fields."""


class Gone(ApiError):
    """410: that revision, page or receipt is no longer kept."""


class Busy(ApiError):
    """429 or 503: not now. `retry_after_s` says when, if the server did."""


class TooStale(ApiError):
    """What the server could answer with is older than what was asked for."""


class Unreachable(Exception):
    """No server was reached, so nothing was changed. `hint` says what to look at."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class OutcomeUnknown(Exception):
    """A write was sent and nobody could say what it came to. Its key is its receipt: ask again, or send the same again."""

    def __init__(self, key: str, what: str, detail: str) -> None:
        super().__init__(f"{what}: the outcome is unknown: {detail}")
        self.key = key
        self.what = what
        self.detail = detail


_TYPES: Final[dict[int, type[ApiError]]] = {
    400: Invalid, 401: Denied, 403: Denied, 404: NotFound, 405: Invalid, 409: Conflict, 410: Gone, 413: Invalid, 415: Invalid,
    422: Invalid, 429: Busy, 503: Busy,
}  # fmt: skip
_STALE_REASONS: Final = frozenset({"StaleEvidence", "TooStale", "ResourceVersionTooLarge"})


def error_of(code: int, body: Any, retry_after: str = "") -> ApiError:
    """The error a Status, or whatever else came with this code, stands for."""
    status = body if isinstance(body, dict) and body.get("kind") == "Status" else {}
    code = status.get("code") or code
    details = status.get("details") or {}
    causes = tuple(
        Cause(str(cause.get("field", "")), str(cause.get("message", "")), str(cause.get("reason", "")))
        for cause in details.get("causes") or ()
    )
    reason = str(status.get("reason") or "")
    message = str(status.get("message") or f"the server answered {code}")
    # The server's own reason stands among the causes: the outer one is Kubernetes'.
    stale = not _STALE_REASONS.isdisjoint({reason, *(word for cause in causes for word in (cause.reason, cause.message))})
    made = TooStale if stale else _TYPES.get(code, ApiError)
    return made(code, reason, message, causes, _seconds(retry_after or details.get("retryAfterSeconds")))


def _seconds(value: object) -> float:
    try:
        return max(0.0, min(float(str(value)), 60.0)) if value else 0.0
    except ValueError:
        return 0.0
