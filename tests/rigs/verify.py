"""Was every promise kept? Compares what clients were told (stories) with what the store holds (history, and a fresh authority).

Owns the verdict of the kill and paused-leader rigs: S1, S2, S4, S9, S13, S14, S18 and the fate of every unknown command. It
changes the store only by the term of leadership its authority takes. Called by the rigs, after their clients have ended.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from fairlead.authority.authority import Authority
from fairlead.authority.candidate import Timing
from fairlead.authority.judge import Settings
from fairlead.authority.state import CLOCK
from fairlead.model.commands import Accepted
from fairlead.ports import SystemClock, SystemIds, Tasks
from fairlead.store.contract import Store
from tests.rigs.clients import NOT_NOW
from tests.rigs.history import Done, History, read_history
from tests.rigs.plane_server import REGION, WHOLE_JOURNAL
from tests.rigs.stories import Line, Story


class Verdict(msgspec.Struct):
    commands: int = 0
    acknowledged: int = 0
    refused: dict[str, int] = {}
    unknown: int = 0
    unknown_committed: int = 0
    unknown_absent: int = 0
    settled_by: dict[str, int] = {}  # how unknown ones ended: receipt, resend, left
    duplicates: int = 0
    lost: int = 0
    resurrected: int = 0  # refused, or absent by the clients' word, and there all the same
    epochs: int = 0
    batches: int = 0
    faults: list[str] = []

    def fault(self, what: str) -> None:
        self.faults.append(what)


async def verify(store: Store, stories: dict[str, Story]) -> Verdict:
    history = await read_history(store)
    verdict = Verdict(faults=list(history.faults), epochs=len(history.epochs), batches=history.batches)
    judge_stories(stories, history, verdict)
    check_order(stories, history, verdict)
    await check_fresh_authority(store, stories, history, verdict)
    return verdict


def judge_stories(stories: dict[str, Story], history: History, verdict: Verdict) -> None:
    refused: Counter[str] = Counter()
    settled: Counter[str] = Counter()
    for name, story in stories.items():
        found = history.commands.get(name, [])
        if len(found) > 1:
            verdict.duplicates += 1
            verdict.fault(f"{name} ({story.sent.what}) took effect {len(found)} times (S13)")
        end = story.end
        if end is None:
            verdict.fault(f"{name} never ended: the rig itself is at fault")
            continue
        if end.event == "accepted":
            verdict.acknowledged += 1
            _check_accepted(name, end, found, verdict)
        elif end.event == "refused":
            refused[end.reason] += 1
            if found:
                verdict.resurrected += 1
                verdict.fault(f"{name} ({story.sent.what}) was refused ({end.reason}) and is there (S13)")
        _check_expected(story, end, verdict)
        if story.unknown is not None:
            settled["left" if end.event == "left" else end.how] += 1
            _count_unknown(end, found, verdict)
    for name in history.commands.keys() - stories.keys():
        verdict.fault(f"{name} is in the journal, and nobody sent it")
    verdict.commands = len(stories)
    verdict.refused = dict(refused)
    verdict.settled_by = dict(settled)


def _check_accepted(name: str, end: Line, found: list[Done], verdict: Verdict) -> None:
    if not found:
        verdict.lost += 1
        verdict.fault(f"{name} was acknowledged at {end.revision} and is not there (S13)")
    elif end.revision != found[0].revision or end.uid not in ("", found[0].uid):
        verdict.lost += 1
        verdict.fault(f"{name} was acknowledged as {end.revision} {end.uid}, the journal says {found[0]} (S13)")


def _check_expected(story: Story, end: Line, verdict: Verdict) -> None:
    expects = story.sent.expects
    if not expects or end.event == "left" or end.reason in NOT_NOW:
        return
    got = end.reason or "accepted"
    if got != expects:
        verdict.fault(f"{end.id} ({story.sent.what}) ended as {got} by {end.how}, where only {expects} is right")


def _count_unknown(end: Line, found: list[Done], verdict: Verdict) -> None:
    """Did the sending that nobody answered take effect? A repetition says so itself; of one left alone the journal does."""
    verdict.unknown += 1
    committed = end.replayed or end.how == "receipt" if end.event == "accepted" else end.event == "left" and bool(found)
    verdict.unknown_committed += committed
    verdict.unknown_absent += not committed


def check_order(stories: dict[str, Story], history: History, verdict: Verdict) -> None:
    """S14 over all clients at once: whatever was acknowledged before a command was first sent has a lower revision."""
    moments: list[tuple[int, int, str, int]] = []
    for name, story in stories.items():
        found = history.commands.get(name)
        if found:
            moments.append((story.sent.ns, 1, name, found[0].revision))
        if story.end is not None and story.end.event == "accepted":
            moments.append((story.end.ns, 0, name, story.end.revision))
    highest = (0, "")
    for _, sent, name, revision in sorted(moments):
        if not sent:
            highest = max(highest, (revision, name))
        elif revision <= highest[0]:
            verdict.fault(f"{name} has revision {revision}; {highest[1]} had {highest[0]} before it was sent (S14)")


async def check_fresh_authority(store: Store, stories: dict[str, Story], history: History, verdict: Verdict) -> None:
    """What a server that loads the store now believes: objects, ledgers, receipts."""
    timing = Timing(lease_ttl_s=2.0, renew_s=0.5, poll_s=0.02, journal=WHOLE_JOURNAL)
    authority = Authority(store, SystemClock(), SystemIds(), Settings(region=REGION), name="verifier", timing=timing)
    async with Tasks() as tasks:
        running = tasks.start(authority.run(), "authority")
        await authority.wait_leading()
        _compare_objects(authority, history, verdict)
        _compare_ledgers(authority, history, verdict)
        _compare_receipts(authority, stories, history, verdict)
        authority.stop()
        await running


def _compare_objects(authority: Authority, history: History, verdict: Verdict) -> None:
    state = authority._state
    records = (rec for plural in list(state._tenants) for rec in state.live(plural) if plural != CLOCK)
    loaded = {str(rec.key): (rec.position, rec.raw) for rec in records}
    mine = "planes//self"  # the fresh authority's own epoch-start batch
    for object_key in sorted((loaded.keys() | history.objects.keys()) - {mine}):
        is_now, was_written = loaded.get(object_key), history.objects.get(object_key)
        if is_now != was_written:
            at = f"at {is_now[0] if is_now else 'nowhere'}, not {was_written[0] if was_written else 'nowhere'}"
            verdict.fault(f"{object_key} was loaded otherwise than the journal says: {at}")


def _compare_ledgers(authority: Authority, history: History, verdict: Verdict) -> None:
    ledger = authority._ctx.ledger
    for name, account in ledger.nodes.items():
        used = (history.node_used[name, "cpu"], history.node_used[name, "memory"])
        booked = (account.allocatable.cpu - account.cpu_free, account.allocatable.memory - account.memory_free)
        if used != booked:
            verdict.fault(f"node {name}: the ledger says {booked}, its bindings sum to {used} (S2)")
    for tenant, tenant_account in ledger.tenants.items():
        for dimension, amount in tenant_account.used.items():
            if amount != history.tenant_used[tenant, dimension]:
                verdict.fault(f"tenant {tenant}: the ledger says {amount} {dimension} (S4)")


def _compare_receipts(authority: Authority, stories: dict[str, Story], history: History, verdict: Verdict) -> None:
    for name, story in stories.items():
        if not story.sent.key:
            continue
        receipt = authority.receipt(story.sent.actor, story.sent.key)
        found = history.commands.get(name)
        wanted = found[0].revision if found else None
        got = receipt.revision if isinstance(receipt, Accepted) else None
        if got != wanted:
            verdict.fault(f"{name}: its receipt says {got}, the journal {wanted}")
