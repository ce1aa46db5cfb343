"""The policy in force for a tenant, compiled, as controllers of the global plane need it. Kept until a policy or the channel
changes; whoever owns one says so."""

from __future__ import annotations

from fairlead.controllers.cache import Cache
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
