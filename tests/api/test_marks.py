"""What a patch may not do to an override through the API: make a region's copy last longer than its original."""

from __future__ import annotations

import pytest

from fairlead.api.app import make_app
from fairlead.api.frontdoor import FrontDoor
from fairlead.authority.judge import Settings
from fairlead.authority.local import LocalPlane
from fairlead.decide.overrides import AGE_MS
from fairlead.model.commands import Put
from fairlead.model.kinds.policy import Override, OverrideScope, OverrideSpec
from fairlead.model.lifecycle import Role
from fairlead.model.meta import MIRRORED_UID, Metadata
from fairlead.ports import SystemClock
from tests.api.doors import GROUP, Door, allow_all, authenticate, call
from tests.authority.planes import ok, running_plane

MEDIA = {"merge": "application/merge-patch+json", "json": "application/json-patch+json"}


@pytest.mark.parametrize("form", ["merge", "json"])
async def test_a_patch_that_starts_the_time_of_a_copy_anew_is_refused_with_the_reason(form: str) -> None:
    async with running_plane(settings=Settings(plane="region", region="us")) as plane:
        clock = SystemClock()
        own = FrontDoor({"us": LocalPlane(plane.authority, clock)}, clock)  # of a region's own server, which is all there is then
        door = Door({"us": plane}, {}, make_app(own, authenticate, allow_all, clock=clock))
        mirror = await plane.as_role(Role.MIRROR)
        meta = Metadata(name="stop", namespace="risk", annotations={MIRRORED_UID: "u-1", AGE_MS: "300000"})
        spec = OverrideSpec(
            kind="hold", reason="flood", ttl_seconds=600, requester="ada", scope=OverrideScope(workloads=("api",))
        )
        ok(await plane.send(mirror, Put("Override", Override(meta, spec))))
        path = f"{GROUP}/namespaces/risk/overrides/stop"
        removed = [{"op": "remove", "path": f"/metadata/annotations/{AGE_MS.replace('/', '~1')}"}]
        body = removed if form == "json" else {"metadata": {"annotations": {AGE_MS: None}}}
        answer = await call(door, "PATCH", path, body, media=MEDIA[form])
        assert answer.status == 403, answer.body
        assert f"annotation {AGE_MS} of stop belongs to mirror" in answer.json["message"]
        kept = await call(door, "GET", path)
        assert kept.json["metadata"]["annotations"][AGE_MS] == "300000"
