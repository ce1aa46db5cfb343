"""`fairlead bench observe` on a small load: what is switched off is off, and the figures of docs/observing.md come out."""

from __future__ import annotations

from contextvars import copy_context
from typing import Any

from bench import observe, observe_sides
from fairlead.authority import authority as authorities
from fairlead.authority import pipeline as pipelines
from fairlead.model import codec
from fairlead.model.commands import Caller, Command, Put
from fairlead.model.journal import NO_COMMAND, Entry, chain_hash
from fairlead.model.kinds.intent import Tenant, TenantSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import Metadata

authority: Any = authorities
pipeline: Any = pipelines
OPTIONS = {option.name: option.default for option in observe.OPTIONS}
SMALL = {"nodes": 50, "slots": 60, "turns": 1, "engine": "memory", "kept": 2_000, "asked": 3, "rate_seconds": 1}


async def test_a_small_run_has_the_figures_and_judges_only_what_it_measured() -> None:
    got = await observe.main(**{**OPTIONS, **SMALL})
    results = got["results"]
    assert got["name"] == "bench observe"
    pieces = results["cpu_us_per_bind_pieces"]
    assert set(pieces) == {"on", "without_decisions", "without_metrics", "without_audit", "off"}
    assert all(len(pieces["on"][work]) == times for work, times in (("binding", 5), ("writing", 1), ("closing", 1)))
    assert results["share_of_cpu_per_bind"] < 1
    for name in ("bytes_per_decision", "bytes_per_decision_whole", "audit_bytes_per_bind", "why_p50_ms", "cpu_us_per_bind"):
        assert results[name] > 0, name
    assert results["why_slots"] == 20


def test_what_is_left_out_is_out_and_comes_back() -> None:
    tenant = Tenant(metadata=Metadata(name="t"), spec=TenantSpec())
    command = Command(Caller("ada", Role.OPERATOR), Put("Tenant", tenant))

    def command_kept() -> bool:
        blob = pipeline.encode_entry(command, codec.encode(command), False, [("tenants//t", b"x")], ())
        return bytes(codec.decoder(Entry).decode(blob).command) != bytes(NO_COMMAND)

    beside = copy_context()  # of a task that was started with everything on
    with observe_sides.only(frozenset()):
        assert pipeline.chain_hash(b"before", b"blob") == b"before"
        assert not command_kept()
        assert beside.run(command_kept)
        assert beside.run(lambda: pipeline.chain_hash(b"before", b"blob")) == chain_hash(b"before", b"blob")
        assert authority.Meters is observe_sides.Quiet
    assert pipeline.chain_hash is chain_hash
    assert authority.Meters is not observe_sides.Quiet
    with observe_sides.only(frozenset({"audit", "metrics"})):
        assert pipeline.chain_hash is chain_hash
        assert authority.Meters is not observe_sides.Quiet
