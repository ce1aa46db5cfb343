"""What people ask for: which services say how many of them must serve. What they were told is kept, whatever it was about."""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.sim.people import keeps_serving, workload
from fairlead.sim.scenario import Work
from tests.sim.races.stage import API, REGION, TENANT, Stage, played

NODE = f"{REGION}-n0"
WORK = Work(jobs=0.0, operators=2.0, budgets=0.25)


def least(name: str, replicas: int, work: Work, kind: int = 50) -> list[int]:
    """Of each number that may be drawn, the budget that comes of it; 0: none."""
    out = []
    for drawn in range(128):
        spec = workload(name, replicas, kind, work)["spec"]
        keeps_serving(spec, drawn, work)
        out.append(spec.get("disruption", {}).get("minServing", 0))
    return out


def test_a_quarter_of_the_services_keeps_all_of_its_replicas_or_all_but_one() -> None:
    assert sorted(least("index", 4, WORK)) == [0] * 96 + [3] * 16 + [4] * 16
    assert set(least("index", 1, replace(WORK, budgets=1.0))) == {1}, "one that is nobody's to keep would be no budget"


def test_what_could_never_leave_and_what_nobody_drains_has_no_budget() -> None:
    all_do = replace(WORK, budgets=1.0)
    assert not any(least("index", 4, replace(all_do, operators=0.0)))
    assert not any(least("index", 4, replace(all_do, jobs=1.0))), "a job"
    assert not any(least("index", 4, replace(all_do, gangs=1.0))), "a gang"
    assert not any(least("api", 2, all_do, kind=51)), "one of devices, which has no spare slot"


def test_each_answer_is_kept_to_be_held_against_the_journals() -> None:
    """An override that is ordered, changed and taken back; a node that is deregistered, which is answered with no object."""

    async def script(stage: Stage) -> list[tuple[str, str]]:
        kept, before = stage.world.answers._sent, len(stage.world.answers._sent)
        path = f"{API}/namespaces/{TENANT}/overrides"
        spec = {"kind": "hold", "reason": "later", "ttlSeconds": 60, "scope": {"workloads": ["api"]}}
        body = {"apiVersion": "fairlead.dev/v1alpha1", "kind": "Override", "metadata": {"name": "later"}, "spec": spec}
        await stage.world.people.write("POST", path, body, "later")
        await stage.world.people.write("PATCH", f"{path}/later", {"spec": {"ttlSeconds": 90}}, "later")
        await stage.world.people.write("DELETE", f"{path}/later", None, "later")
        await stage.world.people.write("DELETE", f"{API}/nodes/{NODE}", None, NODE)
        return [(sent.told, sent.object_key) for sent in kept[before:]]

    override = ("accepted", f"overrides/{TENANT}/later")
    assert played(script) == [override, override, override, ("gone", f"nodes//{NODE}")]
