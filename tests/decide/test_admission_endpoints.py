"""Endpoints are written whole: what is looked at is what changed."""

from __future__ import annotations

from fairlead.decide.admission import faults
from fairlead.model.kinds.work import Endpoint, Endpoints, EndpointsSpec
from fairlead.model.meta import Metadata
from fairlead.model.registry import BY_KIND


def _endpoints(*named: Endpoint, version: int = 1) -> Endpoints:
    spec = EndpointsSpec(workload_uid="u", version=version, endpoints=named)
    return Endpoints(metadata=Metadata(name="api", namespace="risk"), spec=spec)


def _found(new: Endpoints, old: Endpoints | None = None) -> list[str]:
    return [fault.path for fault in faults(BY_KIND["Endpoints"], new, old)]


def test_what_stands_as_it_stood_is_not_looked_at_again_and_everything_else_is() -> None:
    bad, good = Endpoint(slot=0, node="n", address=""), Endpoint(slot=1, node="n", address="a")
    before = _endpoints(bad, good)
    assert _found(before) == ["spec.endpoints[0].address"]
    assert _found(_endpoints(bad, good, version=2), before) == []
    worse = Endpoint(slot=1, node="n", address="")
    assert _found(_endpoints(bad, worse, version=2), before) == ["spec.endpoints[1].address"]
    assert _found(_endpoints(bad, good, Endpoint(slot=2, node="N!", address="a"), version=2), before) == [
        "spec.endpoints[2].node"
    ]


def test_a_slot_that_is_named_twice_is_refused_also_where_both_stood_before() -> None:
    one = Endpoint(slot=0, node="n", address="a")
    assert _found(_endpoints(one, one, version=2), _endpoints(one)) == ["spec.endpoints[1].slot"]
