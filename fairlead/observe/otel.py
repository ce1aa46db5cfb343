"""The one door to OpenTelemetry: spans handed to its SDK, where that is installed (the extra `otel`).

Imported when somebody asks for traces and never before, so that who asks for none pays nothing, not even an import. Owns how a
span of ours becomes one of theirs; otel_http.py brings them to a collector. Called by `fairlead timeline --otlp`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from fairlead.observe.traces import Span

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

SERVICE: Final = "fairlead"
_MS: Final = 1_000_000  # nanoseconds
_AT_ONCE: Final = 512  # spans in one request, as the SDK's own processor does


class NotInstalled(Exception):
    """There is no SDK here. Says what to install."""

    def __init__(self, missing: str) -> None:
        super().__init__(f"{missing} is not installed: pip install 'fairlead[otel]'")


class Undelivered(Exception):
    """The collector did not take all of it. Says why."""


def exporter(endpoint: str) -> SpanExporter:
    """To a collector that speaks OTLP over HTTP, such as http://localhost:4318/v1/traces."""
    try:
        from fairlead.observe.otel_http import NotDelivered, OtlpJson
    except ImportError as error:
        raise NotInstalled("the SDK of OpenTelemetry") from error
    try:
        return OtlpJson(endpoint)
    except NotDelivered as error:
        raise Undelivered(str(error)) from error


def send(spans: Iterable[Span], to: SpanExporter) -> int:
    """How many went. Raises Undelivered: some did not, and may be sent again."""
    try:
        from opentelemetry import trace
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace import TracerProvider

        from fairlead.observe.otel_http import NotDelivered
    except ImportError as error:
        raise NotInstalled("the SDK of OpenTelemetry") from error
    numbers: Any = _numbers()
    provider = TracerProvider(id_generator=numbers, resource=Resource({"service.name": SERVICE}), shutdown_on_exit=False)
    tracer, ended = provider.get_tracer(SERVICE), list[Any]()
    flags = trace.TraceFlags(trace.TraceFlags.SAMPLED)
    for span in spans:
        numbers.next = (span.trace_id, span.span_id)
        parent = trace.SpanContext(span.trace_id, span.parent_id, is_remote=True, trace_flags=flags)
        above = trace.set_span_in_context(trace.NonRecordingSpan(parent)) if span.parent_id else None
        attributes: dict[str, Any] = {**span.attributes}
        made = tracer.start_span(span.name, above, attributes=attributes, start_time=span.begin_ms * _MS)
        made.end(span.end_ms * _MS)
        ended.append(made)
    try:
        for first in range(0, len(ended), _AT_ONCE):
            to.export(ended[first : first + _AT_ONCE])
    except NotDelivered as error:
        raise Undelivered(str(error)) from error
    to.shutdown()
    return len(ended)


def _numbers() -> Any:
    """The ids that a span has already, in place of drawn ones. Made here, for what it must be made of is imported late."""
    from opentelemetry.sdk.trace.id_generator import IdGenerator

    class Numbers(IdGenerator):
        next = (0, 0)

        def generate_trace_id(self) -> int:
            return self.next[0]

        def generate_span_id(self) -> int:
            return self.next[1]

    return Numbers()
