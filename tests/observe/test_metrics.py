"""/metrics as a scraper meets it: whole, documented, parsed by the real parser, and closed to whoever may not read it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from fairlead.api.meters import labels_of
from fairlead.api.watches import BEHIND_S, Watches
from fairlead.cli.reference import FOLDER
from fairlead.observe.exposition import Page
from fairlead.observe.histogram import Histogram
from fairlead.observe.metrics import METRICS, PREFIX
from fairlead.observe.sums import CERTIFICATE_END, HEARD_S, Sums
from fairlead.ports import SystemClock
from fairlead.scheduler.scheduler import Scheduler
from fairlead.security.tls import Ends
from fairlead.store.decisions.log import DecisionLog
from tests.observe.servers import REGION, Served, served
from tests.observe.work import a_node, an_order

Samples = dict[str, dict[tuple[tuple[str, str], ...], float]]


def samples(text: str) -> Samples:
    out: Samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            out.setdefault(sample.name, {})[tuple(sorted(sample.labels.items()))] = sample.value
    return out


def one(found: Samples, name: str, **labels: str) -> float:
    return found[PREFIX + name][tuple(sorted(labels.items()))]


async def scraped(s: Served, token: str) -> Samples:
    code, media, text = await s.get("/metrics", token)
    assert (code, media.split(";")[0]) == (200, "text/plain"), text
    return samples(text)


async def test_every_documented_metric_is_there_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        _, _, text = await s.get("/metrics", await s.token("metrics-reader"))
        types = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        assert types == {row.full: row.type for row in METRICS.values()}
        helps = dict(re.findall(r"^# HELP (\S+) (.+)$", text, re.MULTILINE))
        assert helps == {row.full: row.meaning for row in METRICS.values()}
        assert samples(text)


async def test_a_bound_slot_shows_in_the_figures_and_nobodys_name_does(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        token = await s.token("metrics-reader")
        await a_node(s, "oak")
        await an_order(s, "walnut")
        await s.until(lambda: s.server.authority.view().get("bindings", "risk", "walnut-0"), "a binding")
        await s.until(lambda: s.server._metering._stalls.late.count, "a wake-up")
        scheduler = next(each for each in s.server.components if isinstance(each, Scheduler))
        await s.until(lambda: scheduler.settled and scheduler.meters.bound_total, "the scheduler's answer")
        found = await scraped(s, token)
        assert one(found, "schedule_attempts_total", scheduler="scheduler-0", result="scheduled") == 1
        assert one(found, "bind_commit_total", scheduler="scheduler-0", result="committed") == 1
        assert one(found, "scheduling_attempt_duration_seconds_count", scheduler="scheduler-0") == 1
        assert one(found, "plane_objects", resource="bindings") == 1
        assert one(found, "nodes", health="Ready") == 1
        assert one(found, "leader") == 1
        assert one(found, "commit_duration_seconds_count") > 0
        assert one(found, "controller_lease_epoch", controller="assignment") == 1
        assert one(found, "loop_stall_seconds_count") > 0
        text = (await s.get("/metrics", token))[2]
        assert [name for name in ("oak", "walnut", "risk", "some-metrics-reader") if name in text] == []


async def test_decisions_that_were_made_dropped_and_refused_by_the_disk_are_told_apart(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        log = s.server.decisions
        assert isinstance(log, DecisionLog)
        log.meters.decisions_total, log.meters.decisions_dropped_total, log.meters.decision_write_errors_total = 70, 20, 3
        found = await scraped(s, await s.token("metrics-reader"))
        names = ("decisions_total", "decisions_dropped_total", "decision_write_errors_total")
        assert [one(found, name) for name in names] == [70, 20, 3]


async def test_requests_are_counted_by_verb_resource_and_code(tmp_path: Path) -> None:
    async with served(tmp_path, plane="global") as s:
        token = await s.token("operator")
        path = "/apis/fairlead.dev/v1alpha1/tenants"
        await s.get(path, token)
        await s.get(path + "/risk", token)
        await s.get(path + "/nobody", token)
        await s.get(path + "/risk")
        found = await scraped(s, token)
        for verb, code in (("list", "200"), ("get", "200"), ("get", "404"), ("get", "401")):
            assert one(found, "api_requests_total", verb=verb, resource="tenants", code=code) == 1
        assert one(found, "api_request_duration_seconds_count", verb="get", resource="tenants") == 3
        assert one(found, "api_requests_in_flight", verb="list") == 0


async def test_only_whoever_may_read_metrics_does(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        assert (await s.get("/metrics"))[0] == 401
        assert (await s.get("/metrics", "flt_fairlead-system.nobody." + "0" * 64))[0] == 401
        code, _, text = await s.get("/metrics", await s.token("tenant-admin", ("risk",)))
        assert (code, "metrics-reader" in text) == (403, True)
        assert (await s.get("/apis/fairlead.dev/v1alpha1/nodes", await s.token("metrics-reader")))[0] == 403


def test_what_the_table_does_not_name_cannot_be_shown() -> None:
    page = Page()
    with pytest.raises(KeyError):
        page.put("made_up_total", 1)
    with pytest.raises(AssertionError):
        page.put("leader", 1, region=REGION)
    with pytest.raises(AssertionError):
        page.put("loop_stall_seconds", 1)


def test_names_carry_their_unit_and_the_prefix_is_ours() -> None:
    for row in METRICS.values():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", row.name), row
        assert row.name.endswith("_total") == (row.type == "counter"), row
        assert (row.unit == "seconds") == ("_seconds" in row.name), row
        assert (row.unit == "bytes") == ("_bytes" in row.name), row
        assert row.meaning.endswith("."), row


def test_the_page_of_the_reference_lists_each_and_no_other() -> None:
    written = re.findall(r"^\| `(\S+)` \|", (FOLDER / "metrics.md").read_text(), re.MULTILINE)
    assert written == [row.full for row in METRICS.values()]


def test_a_histogram_counts_up_to_each_bound_and_survives_the_parser() -> None:
    histogram = Histogram((1.0, 2.0))
    for value, times in ((0.5, 1), (1.0, 1), (1.5, 2), (9.0, 1)):
        histogram.observe(value, times)
    page = Page()
    page.histogram("loop_stall_seconds", histogram)
    found = samples(page.render().decode())
    name = "loop_stall_seconds_bucket"
    assert [one(found, name, le=le) for le in ("1.0", "2.0", "+Inf")] == [2, 4, 5]
    assert (one(found, "loop_stall_seconds_count"), one(found, "loop_stall_seconds_sum")) == (5, 13.5)


def test_watches_whose_clients_are_slow_are_counted() -> None:
    class Stream:
        def __init__(self, behind_s: float) -> None:
            self.offered_s = behind_s

        def end(self) -> None: ...

        def behind_s(self) -> float:
            return self.offered_s

    watches, slow, fast = Watches(SystemClock()), Stream(BEHIND_S), Stream(BEHIND_S / 2)
    for stream in (slow, fast):
        watches.opened(stream)
    assert (len(watches), watches.behind) == (2, 1)
    slow.offered_s = 0.0
    assert watches.behind == 0


@pytest.mark.parametrize(
    ("method", "path", "query", "labels"),
    [
        ("GET", "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads", b"", ("list", "workloads")),
        ("GET", "/apis/fairlead.dev/v1alpha1/workloads", b"limit=5&watch=true", ("watch", "workloads")),
        ("PATCH", "/apis/fairlead.dev/v1alpha1/namespaces/risk/workloads/a/scale", b"", ("patch", "workloads/scale")),
        ("DELETE", "/apis/fairlead.dev/v1alpha1/nodes", b"", ("deletecollection", "nodes")),
        ("POST", "/api/v1/namespaces", b"", ("create", "namespaces")),
        ("GET", "/api/v1/namespaces/risk", b"", ("get", "namespaces")),
        ("GET", "/apis/fairlead.dev/v1alpha1/what-a-stranger-says/x", b"", ("get", "other")),
        ("GET", "/what-a-stranger-says", b"", ("get", "other")),
        ("BREW", "/metrics", b"", ("other", "metrics")),
    ],
)
def test_labels_of_a_request_come_from_closed_sets(method: str, path: str, query: bytes, labels: tuple[str, str]) -> None:
    assert labels_of(method, path, query) == labels


def test_sums_over_sources_never_go_back_and_forget_who_left() -> None:
    sums = Sums(("reports",), ("running",))
    sums.tell("a", 0.0, {"reports": 10, "running": 2})
    sums.tell("b", 1.0, {"reports": 5, "running": 1})
    sums.tell("a", 2.0, {"reports": 12, "running": 3})
    assert (sums.totals["reports"], sums.gauges(2.0)["running"], sums.sources(2.0)) == (17, 4, 2)
    sums.tell("b", 3.0, {"reports": 1, "running": "many", "made-up": 7})  # it started over, and talks nonsense
    assert (sums.totals["reports"], sums.gauges(3.0)["running"]) == (18, 3)
    assert (sums.sources(HEARD_S + 2.5), sums.totals["reports"]) == (1, 18)


def test_of_what_sources_say_the_least_is_told_while_they_are_there() -> None:
    sums = Sums((), (), ("end",))
    assert sums.least(0.0) == {}
    sums.tell("a", 0.0, {"end": 70})
    sums.tell("b", 1.0, {"end": 50})
    sums.tell("older", 1.0, {})
    sums.tell("liar", 1.0, {"end": "soon"})
    assert sums.least(1.0) == {"end": 50}
    sums.tell("a", 40.0, {"end": 70})
    assert sums.least(HEARD_S + 1.5) == {"end": 70}


class Ending:
    def __init__(self, clock: SystemClock) -> None:
        self.now_s = clock.wall()

    def certificates(self) -> dict[str, Ends]:
        return {"server": Ends(self.now_s + 1000, self.now_s + 9000), "component": Ends(self.now_s - 500, self.now_s + 8000)}


async def test_it_is_told_how_long_certificates_last(tmp_path: Path) -> None:
    async with served(tmp_path) as s:
        token = await s.token("metrics-reader")
        name = "certificate_expiry_seconds"
        assert PREFIX + name not in await scraped(s, token), "without TLS there are none"
        s.server._metering._outside = Ending(s.clock)
        for node, left_s in (("a", 3000), ("b", 2000)):
            s.server._service.agents.tell(node, s.clock.monotonic(), {CERTIFICATE_END: s.clock.wall() + left_s})
        found = await scraped(s, token)
        told = {purpose: one(found, name, certificate=purpose) for purpose in ("server", "component", "authority", "agent")}
        assert told == {key: pytest.approx(value, abs=300) for key, value in
                        {"server": 1000, "component": -500, "authority": 8000, "agent": 2000}.items()}  # fmt: skip
