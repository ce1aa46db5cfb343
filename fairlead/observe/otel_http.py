"""Spans to a collector that speaks OTLP over HTTP, in its JSON form, which every collector takes: nothing but the SDK is needed.

Owns the words of the wire and says when something was not taken. Repeats nothing: whoever asked for traces asks again, and the
same ids add to the same traces. Called by otel.py, the door to OpenTelemetry; imported when somebody sends traces.
"""

from __future__ import annotations

import http.client
import os
from collections.abc import Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

TIMEOUT_S: Final = 30.0
HEADERS: Final = "OTEL_EXPORTER_OTLP_HEADERS"  # NAME=VALUE,NAME=VALUE: how collectors are told who asks
_INTERNAL: Final = 1  # the kind of a span that is nobody's request
_SAID_MAX: Final = 200


class NotDelivered(Exception):
    """The collector did not take it. Says why."""


class OtlpJson(SpanExporter):
    def __init__(self, endpoint: str) -> None:
        parts = urlsplit(endpoint)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise NotDelivered(f"{endpoint!r} is not a URL such as http://localhost:4318/v1/traces")
        self._endpoint = endpoint
        self._parts = parts
        given = (pair.partition("=") for pair in os.environ.get(HEADERS, "").split(",") if "=" in pair)
        self._headers = {"Content-Type": "application/json", **{name.strip(): value.strip() for name, _, value in given}}

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        """Raises NotDelivered, where the SDK's own would log it and go on."""
        parts = self._parts
        made: type[http.client.HTTPConnection] = (
            http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        )
        connection = made(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        try:
            connection.request("POST", parts.path or "/v1/traces", msgspec.json.encode(body_of(spans)), self._headers)
            answer = connection.getresponse()
            said = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise NotDelivered(f"{self._endpoint}: {error or type(error).__name__}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            told = said[:_SAID_MAX].decode(errors="replace")
            raise NotDelivered(f"{self._endpoint} answered {answer.status} {answer.reason}: {told}")
        rejected = _rejected(said)
        if rejected:
            raise NotDelivered(f"{self._endpoint} took all but {rejected}")
        return SpanExportResult.SUCCESS


def body_of(spans: Sequence[ReadableSpan]) -> dict[str, Any]:
    """An ExportTraceServiceRequest of spans of one resource."""
    resource = dict(spans[0].resource.attributes) if spans else {}
    scope = spans[0].instrumentation_scope if spans else None
    of_scope = {"scope": {"name": scope.name if scope is not None else ""}, "spans": [_span(span) for span in spans]}
    return {"resourceSpans": [{"resource": {"attributes": _attributes(resource)}, "scopeSpans": [of_scope]}]}


def _span(span: ReadableSpan) -> dict[str, Any]:
    context = span.get_span_context()
    assert context is not None, "a span that has ended has its ids"
    told = {
        "traceId": f"{context.trace_id:032x}",
        "spanId": f"{context.span_id:016x}",
        "name": span.name,
        "kind": _INTERNAL,
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(dict(span.attributes or {})),
    }
    return told | ({"parentSpanId": f"{span.parent.span_id:016x}"} if span.parent is not None else {})


def _attributes(given: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": str(value)}}
        for key, value in given.items()
    ]


def _rejected(said: bytes) -> str:
    """What the collector says it did not take; empty: it took all."""
    try:
        partial = (msgspec.json.decode(said) or {}).get("partialSuccess") or {}
    except (msgspec.DecodeError, AttributeError):
        return ""
    count = int(partial.get("rejectedSpans") or 0)
    return f"{count} spans: {partial.get('errorMessage', '')}" if count else ""
