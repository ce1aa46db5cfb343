"""What counts for a rollout only once it has served for a while."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from fairlead.decide.proving import Proof, ServedThroughout, seconds_to_prove
from fairlead.model.kinds.intent import Probe, Probes, RolloutRule, TcpSocket, Template, WorkloadSpec

WHILE_MS = 3000


def test_a_readiness_probe_needs_no_more_and_who_says_how_long_is_obeyed() -> None:
    probed = WorkloadSpec(template=Template(probes=Probes(readiness=Probe(tcp_socket=TcpSocket(port="http")))))
    assert seconds_to_prove(WorkloadSpec()) == 3
    assert seconds_to_prove(probed) == 0
    assert seconds_to_prove(replace(probed, rollout=RolloutRule(min_ready_seconds=7))) == 7
    assert seconds_to_prove(WorkloadSpec(rollout=RolloutRule(min_ready_seconds=0))) == 0


def test_what_served_when_it_began_is_proven_and_each_that_comes_after_it_has_served() -> None:
    served = ServedThroughout(1, 2, 10_000)
    assert served.look(2, WHILE_MS, 10_000) == Proof(0, None)
    assert served.look(3, WHILE_MS, 11_000) == Proof(1, 14_000)
    assert served.look(4, WHILE_MS, 12_000) == Proof(2, 14_000)
    assert served.look(4, WHILE_MS, 14_000) == Proof(1, 15_000)
    assert served.look(4, WHILE_MS, 15_000) == Proof(0, None)


def test_one_that_dies_again_and_again_is_never_proven() -> None:
    served, now_ms = ServedThroughout(1, 0, 0), 0
    for _ in range(20):
        assert served.look(1, WHILE_MS, now_ms).lacking == 1
        now_ms += 2900
        assert served.look(0, WHILE_MS, now_ms) == Proof(0, None)
        now_ms += 100


@given(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 5)), min_size=1, max_size=40))
def test_it_is_the_fewest_of_the_while_whatever_the_order(steps: list[tuple[int, int]]) -> None:
    first = steps[0][1]
    served, now_ms = ServedThroughout(1, first, 0), 0
    seen = [(0, first)]  # from when on how many
    for gap_ms, count in steps[1:]:
        now_ms += gap_ms
        found = served.look(count, WHILE_MS, now_ms)
        seen.append((now_ms, count))
        ends = [ms for ms, _ in seen[1:]] + [now_ms + 1]
        fewest = min(n for (_, n), end_ms in zip(seen, ends, strict=True) if end_ms > now_ms - WHILE_MS)
        assert found.lacking == count - fewest
        assert (found.wake_ms is None) == (found.lacking == 0)
        if found.wake_ms is not None:
            assert now_ms < found.wake_ms <= now_ms + WHILE_MS
