"""Keeps the queue's holds as the overrides in force say: who is held, by whom, until when.

Owns no rule of its own (decide/overrides.py says what is in force); the authority refuses what is tried all the same. Called by
the observer with every change of an override and every tenant that turns up, and by the scheduler when an override ends.
"""

from __future__ import annotations

from fairlead.decide.overrides import EVERYONE, Where, concerns, ends_ms, is_in_force, tenants_of, words
from fairlead.model.kinds.policy import Override
from fairlead.scheduler.policies import Policies
from fairlead.scheduler.queue import Queue
from fairlead.scheduler.wakeups import PolicyPromoted

_Held = tuple[str, str]  # tenant, and workload; an empty one is all of them


class Holding:
    def __init__(self, queue: Queue, policies: Policies, region: str) -> None:
        self._queue = queue
        self._policies = policies
        self._region = region
        self._tenants: dict[str, None] = {}
        self._held: dict[_Held, tuple[str, int]] = {}
        self._looked_ms = 0

    @property
    def next_end_ms(self) -> int | None:
        """When an override ends that has been looked at as one in force."""
        return self._policies.overrides.next_end_ms(self._looked_ms)

    def seen(self, tenant: str, now_ms: int) -> None:
        """A tenant has work here: what holds everyone holds it too."""
        if tenant not in self._tenants:
            self._tenants[tenant] = None
            if self._policies.overrides.has("hold"):
                self._sync(now_ms)

    def changed(self, tenant: str, name: str, override: Override | None, now_ms: int) -> None:
        self._policies.set_override(tenant, name, override)
        self._sync(now_ms)

    def ended(self, now_ms: int) -> None:
        """An override's time is over: what it kept back is looked at again."""
        end_ms = self.next_end_ms
        if end_ms is not None and end_ms <= now_ms:
            self._policies.overrides_ended()
            self._sync(now_ms)

    def _sync(self, now_ms: int) -> None:
        self._looked_ms = now_ms
        wanted = self._wanted(now_ms)
        for tenant, workload in [held for held in self._held if held not in wanted]:
            self._queue.release(tenant, workload, now_ms)
        for held, (who, until_ms) in wanted.items():
            if self._held.get(held) != (who, until_ms):
                self._queue.hold(*held, who, until_ms, now_ms)
        self._held = wanted
        self._queue.wake(PolicyPromoted(), now_ms)

    def _wanted(self, now_ms: int) -> dict[_Held, tuple[str, int]]:
        wanted: dict[_Held, tuple[str, int]] = {}
        for override in self._policies.overrides:
            if override.spec.kind != "hold" or not is_in_force(override, now_ms):
                continue
            for held in self._scope(override):
                if ends_ms(override) > wanted.get(held, ("", 0))[1]:
                    wanted[held] = (words(override), ends_ms(override))
        return wanted

    def _scope(self, override: Override) -> list[_Held]:
        scope, named = override.spec.scope, tenants_of(override)
        tenants = tuple(self._tenants) if EVERYONE in named else named
        plain = [name.rpartition("/")[2] for name in scope.workloads] or [""]
        pairs = [(tenant, workload) for tenant in tenants for workload in plain]
        return [(tenant, workload) for tenant, workload in pairs if concerns(override, Where(tenant, workload, self._region))]
