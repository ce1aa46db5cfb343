"""Why a request failed, as the `Status` objects clients know. An exception inside the API; data on the wire.

Owns the map from our refusals to Kubernetes' reasons. Never decides a refusal. Raised by every handler, answered by app.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from fairlead.model.commands import MISSING, Fault, Refused
from fairlead.model.ids import split_key
from fairlead.model.refusals import REFUSALS
from fairlead.ports import Random

GROUP: Final = "fairlead.dev"

# What clients act on; any other code gets the reason of its class. Our own reason stands in details.causes.
_REASONS: Final = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}

Cause = dict[str, str]


class Failure(Exception):
    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: float = 0.0,
        kind: str = "",
        name: str = "",
        group: str = GROUP,
    ) -> None:
        message = _sendable(message)
        super().__init__(message)
        self.code = code
        self.message = message
        self.reason = reason or _REASONS.get(code, "Unknown")
        self.causes = list(causes)
        self.retry_after_s = retry_after_s
        self.kind = kind
        self.name = name
        self.group = group

    def about(self, kind: str, name: str, group: str = GROUP) -> Failure:
        """The same, saying which object it is about, unless it does already."""
        if not self.kind:
            self.kind, self.name, self.group = kind, _sendable(name), group
        return self

    def headers(self) -> list[tuple[str, str]]:
        if not self.retry_after_s:
            return []
        return [("Retry-After", str(max(1, math.ceil(self.retry_after_s))))]

    def spread(self, random: Random) -> Failure:
        """The same; of those who are turned away, each hears a time of its own."""
        if self.code == 429 and self.retry_after_s:
            self.retry_after_s = spread(self.retry_after_s, random)
        return self

    def status(self) -> dict[str, Any]:
        details: dict[str, Any] = {}
        if self.kind:
            details = {"name": self.name, "group": self.group, "kind": self.kind}
        if self.causes:
            details["causes"] = self.causes
        if self.retry_after_s:
            details["retryAfterSeconds"] = max(1, math.ceil(self.retry_after_s))
        body: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "code": self.code,
        }
        if details:
            body["details"] = details
        return body


def spread(after_s: float, random: Random) -> int:
    """Whole seconds, from what is given to twice that: those who are turned away together do not come back together."""
    least = max(1, math.ceil(after_s))
    return random.randrange(least, 2 * least + 1)


def _sendable(text: str) -> str:
    """A stranger's words may be quoted in it, and half a surrogate pair cannot be sent."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def success(kind: str, name: str, uid: str, group: str = GROUP) -> dict[str, Any]:
    details = {"name": name, "group": group, "kind": kind, "uid": uid}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details}


def bad_request(message: str) -> Failure:
    return Failure(400, message)


def not_found(plural: str, name: str, group: str = GROUP) -> Failure:
    where = f"{plural}.{group}" if group else plural
    return Failure(404, f'{where} "{name}" not found', kind=plural, name=name, group=group)


def busy(where: str, retry_after_s: float) -> Failure:
    """More is asked of a plane at once than it takes. Nothing that was asked for then was done."""
    cause = {"reason": "Overloaded", "message": f"{where} has too much to do", "field": ""}
    return Failure(429, f"{where} has too much to do just now; ask again later", causes=[cause], retry_after_s=retry_after_s)


def unacceptable(kind: str, name: str, faults: Sequence[Fault]) -> Failure:
    """The object cannot be taken; each fault with its field."""
    causes = [{"reason": "FieldValueInvalid", "message": f.message, "field": f.path} for f in faults]
    first = "; ".join(f"{f.path}: {f.message}" if f.path else f.message for f in faults[:3])
    more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
    return Failure(422, f'{kind} "{name}" is invalid: {first}{more}', causes=causes)


def of_refusal(refused: Refused, kind: str, plural: str, name: str) -> Failure:
    """A refusal of the authority, with our own reason as a cause so that nothing is lost on the way."""
    info = REFUSALS.get(refused.reason)
    code = info.http_status if info is not None else 500
    if refused.reason == "Invalid" and refused.faults:
        return unacceptable(kind, name, refused.faults).about(plural, name)
    causes: list[Cause] = [{"reason": refused.reason, "message": refused.detail, "field": ""}]
    causes += [{"reason": "FieldValueInvalid", "message": f.message, "field": f.path} for f in refused.faults]
    reason = ""
    message = refused.detail
    if refused.reason == "AlreadyExists":
        reason, message = "AlreadyExists", f'{plural}.{GROUP} "{name}" already exists'
    elif code == 409:
        message = f'operation cannot be fulfilled on {plural}.{GROUP} "{name}": {refused.detail}'
    elif code == 404 and MISSING in refused.facts:
        plural, _, name = split_key(refused.facts[MISSING])
        message = f'{plural}.{GROUP} "{name}" not found: {refused.detail}'
    elif code == 404:
        message = f'{plural}.{GROUP} "{name}" not found'
    elif code == 403:
        message = f'{plural}.{GROUP} "{name}" is forbidden: {refused.detail}'
    return Failure(
        code, message, reason=reason, causes=causes, retry_after_s=refused.retry_after_s, kind=plural, name=name
    )  # fmt: skip
