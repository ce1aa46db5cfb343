"""Traces at a real collector: an HTTP server that keeps what it is sent, asked by the real SDK and by the command line."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import msgspec
import pytest

from fairlead.cli.frame import ERROR, OK
from fairlead.observe import otel
from fairlead.observe.traces import spans_of
from tests.cli.test_history import config, run
from tests.observe.test_traces import step

__all__ = ["config"]  # a history that a real authority wrote


class Collector(HTTPServer):
    """Answers as it is told to."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Taking)
        self.taken: list[tuple[str, dict[str, str], Any]] = []  # path, headers, body
        self.answer: tuple[int, bytes] = (200, b"{}")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/v1/traces"

    def spans(self) -> list[dict[str, Any]]:
        return [
            span
            for _, _, body in self.taken
            for resource in body["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        ]


class Taking(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.taken.append((self.path, headers, msgspec.json.decode(body)))
        status, said = self.server.answer
        self.send_response(status)
        self.send_header("content-length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *given: Any) -> None:
        """Nobody reads it."""


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as made:
        thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield made
        made.shutdown()
        thread.join(60)


TWO = [
    step(10, "created", "admitted", 1, "global", "workload/api"),
    step(20, "Bound", "bound"),
    step(30, "Released", "released"),
    step(50, "generation 2", "admitted", 2, "global", "workload/api"),
    step(60, "Bound", "bound", 2),
]


def test_a_collector_gets_one_trace_a_generation_with_parents_times_and_evidence(
    collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "x-team=risk, x-key=a=b")
    assert otel.send(spans_of("risk", "api", TWO), otel.exporter(collector.url)) == 4
    ((path, headers, body),) = collector.taken
    assert (path, headers["content-type"]) == ("/v1/traces", "application/json")
    assert (headers["x-team"], headers["x-key"]) == ("risk", "a=b")
    assert body["resourceSpans"][0]["resource"]["attributes"] == [{"key": "service.name", "value": {"stringValue": "fairlead"}}]
    traces: dict[str, list[dict[str, Any]]] = {}
    for span in collector.spans():
        traces.setdefault(span["traceId"], []).append(span)
    assert {len(identity) for identity in traces} == {32}
    found = {}
    for spans in traces.values():
        (root,) = [span for span in spans if "parentSpanId" not in span]
        (below,) = [span for span in spans if "parentSpanId" in span]
        assert below["parentSpanId"] == root["spanId"]
        said = {one["key"]: one["value"] for one in root["attributes"]}
        found[said["fairlead.generation"]["intValue"]] = (below["name"], below["startTimeUnixNano"], below["endTimeUnixNano"])
    assert found == {"1": ("bound", "20000000", "30000000"), "2": ("bound", "60000000", "60000000")}


async def test_the_command_line_sends_the_history_of_a_workload_to_a_collector(
    config: Path, collector: Collector, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("timeline", "api", "-n", "risk", "--config", str(config), "--otlp", collector.url)
    assert run(config, *words) == OK
    spans = collector.spans()
    assert len({span["traceId"] for span in spans}) == 1
    names = [span["name"] for span in spans if "parentSpanId" in span]
    assert sorted(names) == ["bound", "queued", "queued", "ready", "started"]
    assert f"{len(spans)} spans of 1 generations of risk/api sent" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ((503, b"full"), "answered 503"),
        ((200, b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "too old"}}'), "took all but 2 spans: too old"),
    ],
)
async def test_what_a_collector_does_not_take_is_an_error(
    config: Path, collector: Collector, capsys: pytest.CaptureFixture[str], answer: tuple[int, bytes], said: str
) -> None:
    collector.answer = answer
    assert run(config, "timeline", "api", "-n", "risk", "--config", str(config), "--otlp", collector.url) == ERROR
    assert said in capsys.readouterr().err


async def test_a_collector_that_is_not_there_or_is_none_is_an_error(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for url in ("http://127.0.0.1:1/v1/traces", "localhost:4318"):
        assert run(config, "timeline", "api", "-n", "risk", "--config", str(config), "--otlp", url) == ERROR
        assert url in capsys.readouterr().err
