"""The policy in force for a tenant, compiled, and the versions that regions are leased, as controllers of the global plane need
them. What is compiled is kept until a policy or the channel changes; whoever owns one says so."""

from __future__ import annotations

from fairlead.controllers.cache import Cache
from fairlead.controllers.contract import View
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.leasing import Versions, stands
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.policy import CompiledPolicy, built_in_policy, compile_policy, revision_for
from fairlead.model.kinds.policy import PolicyChannel


class PoliciesInForce:
    def __init__(self, registry: Registry = BUILT_INS) -> None:
        self._registry = registry
        self._compiled: dict[int, CompiledPolicy] = {}

    def forget(self) -> None:
        self._compiled.clear()

    def of(self, cache: Cache, tenant: str) -> CompiledPolicy:
        channel: PolicyChannel | None = cache.get("policychannels", "", "default")
        number = revision_for(channel.spec, tenant) if channel is not None else 0
        known = self._compiled.get(number)
        if known is not None:
            return known
        spec = next((item.hot.spec for item in cache.all("schedulerpolicies") if item.hot.spec.revision == number), None)
        compiled = compile_policy(spec, self._registry) if spec is not None else None
        if not isinstance(compiled, CompiledPolicy):  # none, or one this process cannot read: what always holds
            compiled = built_in_policy(self._registry)
        self._compiled[number] = compiled
        return compiled


def versions_for(view: View, region: str) -> Versions:
    """What policy and residency are at for a region, in the global plane's picture."""
    channel, found = view.cache.item("policychannels", "", CHANNEL_NAME), view.cache.item("regions", "", region)
    return stands(
        channel.object.metadata if channel is not None else None,
        found.object.metadata if found is not None else None,
        view.incarnation,
    )
