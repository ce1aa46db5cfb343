"""Which policy revision decides for a tenant, as the watch has it, beside which overrides: channel and revisions in, compiled
policies out.

Called by the scheduler, which tells it of every change; the authority refuses a decision made under another revision than the one
in force, so being late here costs a round and nothing else.
"""

from __future__ import annotations

from fairlead.decide.overrides import Overrides
from fairlead.decide.plugins import BUILT_INS, Registry
from fairlead.decide.policy import CompiledPolicy, built_in_policy, compile_policy, revision_for
from fairlead.model.kinds.policy import Override, PolicyChannel, SchedulerPolicy


class Policies:
    def __init__(self, registry: Registry = BUILT_INS, region: str = "") -> None:
        self._registry = registry
        self._region = region
        self._built_in = built_in_policy(registry)
        self._channel: PolicyChannel | None = None
        self._specs: dict[int, SchedulerPolicy] = {}
        self._compiled: dict[int, CompiledPolicy | None] = {0: self._built_in}
        self._of_tenant: dict[str, CompiledPolicy | None] = {}
        self.overrides = Overrides()
        self.version = 0  # grows with every change that may decide otherwise

    def set_channel(self, channel: PolicyChannel | None) -> None:
        self._channel = channel
        self._of_tenant.clear()
        self.version += 1

    def set_revision(self, name: str, policy: SchedulerPolicy | None) -> None:
        for revision, known in list(self._specs.items()):
            if known.metadata.name == name:
                del self._specs[revision]
                self._compiled.pop(revision, None)
        if policy is not None:
            self._specs[policy.spec.revision] = policy
            self._compiled.pop(policy.spec.revision, None)
        self._compiled[0] = self._built_in
        self._of_tenant.clear()
        self.version += 1

    def set_override(self, tenant: str, name: str, override: Override | None) -> None:
        self.overrides.set(tenant, name, override)
        self.version += 1

    def overrides_ended(self) -> None:
        """What was compiled with one in force is made anew: rankings do not look at the time."""
        self.overrides.changed()
        self.version += 1

    def policy_for(self, tenant: str) -> CompiledPolicy | None:
        """None: the revision in force is not here, or cannot be compiled with what this process has loaded."""
        if tenant not in self._of_tenant:
            revision = revision_for(self._channel.spec, tenant, self._region) if self._channel is not None else 0
            self._of_tenant[tenant] = self._compile(revision)
        return self._of_tenant[tenant]

    def _compile(self, revision: int) -> CompiledPolicy | None:
        if revision not in self._compiled:
            known = self._specs.get(revision)
            compiled = compile_policy(known.spec, self._registry) if known is not None else None
            self._compiled[revision] = compiled if isinstance(compiled, CompiledPolicy) else None
        return self._compiled[revision]
