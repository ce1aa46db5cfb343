"""Which policy revision decides for a tenant, the revision itself, compiled, and until when it is leased to this region (P14).
Asked at every bind, so all are remembered for as long as the objects they came from are the present ones. Reads the speculative
state only; called by the judges."""

from __future__ import annotations

from fairlead.authority.state import Rec, State
from fairlead.decide.admission.policy import CHANNEL_NAME
from fairlead.decide.built_in_policy import BUILT_IN
from fairlead.decide.leasing import VERSION, installed, policy_end_ms, stands
from fairlead.decide.plugins import Registry
from fairlead.decide.policy import CompiledPolicy, built_in_policy, compile_policy, missing_plugins, revision_for
from fairlead.model.commands import MISSING, Fault, Refused
from fairlead.model.ids import key
from fairlead.model.kinds.policy import PolicyChannel, SchedulerPolicy
from fairlead.model.kinds.quota import GrantTerm
from fairlead.model.meta import Metadata

_TENANTS_MAX = 100_000
_REVISIONS_MAX = 100
_CHANNELS, _POLICIES = "policychannels", "schedulerpolicies"


class Policies:
    def __init__(self, state: State, registry: Registry, region: str = "") -> None:
        self._state = state
        self._region = region
        self._registry = registry
        self._channel: PolicyChannel | None = None
        self._in_force: dict[str, tuple[int]] = {}
        self._compiled: dict[int, tuple[Rec, CompiledPolicy | tuple[Fault, ...]]] = {}
        self._built_in: CompiledPolicy | None = None
        self._lease: tuple[int, int] | None = None  # incarnation, and when the lease ends
        state.derive(_CHANNELS, self._channel_changed)
        if region:  # the global plane leases, and is leased nothing
            state.derive("grantterms", self._lease_changed)
            state.derive("regions", self._lease_changed)

    def _channel_changed(self, old: Rec | None, new: Rec | None) -> None:
        """Also told when a batch is undone, so what is remembered never outlives its channel."""
        changed = new or old
        if changed is not None and changed.name == CHANNEL_NAME:
            self._channel = new.hot if new is not None else None
            self._in_force = {}
            self._lease = None

    def _lease_changed(self, old: Rec | None, new: Rec | None) -> None:
        self._lease = None

    # --- the lease of policy and residency (P14) -----------------------------------------------------------------------------

    @property
    def channel_meta(self) -> Metadata | None:
        return self._channel.metadata if self._channel is not None else None

    @property
    def region_meta(self) -> Metadata | None:
        return self._meta_of(self._region)

    def _meta_of(self, region: str) -> Metadata | None:
        rec = self._state.get("regions", "", region)
        found: Metadata | None = rec.hot.metadata if rec is not None else None
        return found

    def refuse_unleased(self, incarnation: int, now_ms: int) -> Refused | None:
        """Nothing is placed by a policy and by areas that may be others by now."""
        lease = self._lease
        if lease is None or lease[0] != incarnation:
            term: GrantTerm | None = self._state.hot("grantterms", "", self._region) if self._region else None
            have = installed(self.channel_meta, self.region_meta)
            lease = self._lease = (incarnation, policy_end_ms(term, have, incarnation))
        if now_ms < lease[1]:
            return None
        detail = f"the lease of {self._region} on policy and residency has ended" if lease[1] else "policy is not leased yet"
        return Refused("PolicyLeaseEnded", detail, {"endedMs": lease[1]})

    def refuse_answer(self, new: GrantTerm, old: GrantTerm | None, incarnation: int) -> Refused | None:
        """An answer leases what is in force at this moment: one that was made on an older picture is made again."""
        if not new.spec.lease_seconds or (old is not None and old.spec.answered == new.spec.answered):
            return None
        now = stands(self.channel_meta, self._meta_of(new.spec.region), incarnation)
        if now == (new.spec.policy, new.spec.residency):
            return None
        return Refused(
            "StalePolicy", f"policy and residency are at {tuple(now)}", {"policy": now.policy, "residency": now.residency}
        )

    @staticmethod
    def refuse_older(new: Metadata, old: Metadata | None) -> Refused | None:
        """A copy never goes back: whoever read an older original was behind."""
        before, after = (int(meta.annotations.get(VERSION, "0")) if meta is not None else 0 for meta in (old, new))
        return Refused("Conflict", f"version {before} of {new.name} is here already, not {after}") if after < before else None

    # --- revisions -----------------------------------------------------------------------------------------------------------

    def in_force(self, tenant: str) -> tuple[int]:
        """The one revision a decision for this tenant must have been made under; 0 is the built-in one."""
        found = self._in_force.get(tenant)
        if found is None:
            if len(self._in_force) >= _TENANTS_MAX:
                self._in_force.clear()
            revision = revision_for(self._channel.spec, tenant, self._region) if self._channel is not None else BUILT_IN.revision
            found = self._in_force[tenant] = (revision,)
        return found

    def compiled(self, revision: int) -> CompiledPolicy | Refused:
        """Refused: this plane does not have the revision, or cannot carry it out."""
        if revision == 0:
            self._built_in = self._built_in or built_in_policy(self._registry)
            return self._built_in
        rec = self._state.get(_POLICIES, "", f"r{revision}")
        if rec is None:
            facts = {"policyRevision": revision, MISSING: key(_POLICIES, "", f"r{revision}")}
            return Refused("NotFound", f"there is no SchedulerPolicy r{revision} here", facts)
        kept = self._compiled.get(revision)
        if kept is None or kept[0] is not rec:
            if len(self._compiled) >= _REVISIONS_MAX:
                self._compiled.clear()
            kept = self._compiled[revision] = (rec, compile_policy(rec.hot.spec, self._registry))
        found = kept[1]
        return found if isinstance(found, CompiledPolicy) else self._refusal(rec.hot, found)

    def refuse_policy(self, new: SchedulerPolicy) -> Refused | None:
        """A hard gate must be asked here too, so a plane that lacks one does not take the revision."""
        found = compile_policy(new.spec, self._registry)
        return None if isinstance(found, CompiledPolicy) else self._refusal(new, found)

    def refuse_channel(self, new: PolicyChannel) -> Refused | None:
        """A channel to a revision that is not here would stop every bind."""
        spec = new.spec
        for revision in (spec.current, *([spec.canary.revision] if spec.canary is not None else [])):
            found = self.compiled(revision)
            if isinstance(found, Refused):
                return found
        return None

    def refuse_policy_delete(self, rec: Rec) -> Refused | None:
        if self._channel is None:
            return None
        spec, revision = self._channel.spec, rec.hot.spec.revision
        facts = {"policyRevision": revision}
        if revision == spec.current or (spec.canary is not None and revision == spec.canary.revision):
            return Refused("InUse", f"the channel still names revision {revision}", facts)
        # A region's copy goes when the original has gone.
        if not self._region and revision in spec.history:
            detail = f"the channel can still be rolled back to revision {revision}: take it out of its spec.history first"
            return Refused("InUse", detail, facts)
        return None

    def _refusal(self, policy: SchedulerPolicy, faults: tuple[Fault, ...]) -> Refused:
        """What admission lets through is whole but for what only loaded plug-ins can tell."""
        reason = "PluginMissing" if missing_plugins(policy.spec, self._registry) else "Invalid"
        first = f"SchedulerPolicy {policy.metadata.name}: {faults[0].path}: {faults[0].message}"
        return Refused(reason, first, {"policyRevision": policy.spec.revision}, faults=faults)
