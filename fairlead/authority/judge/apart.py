"""What the authority itself adds to the report after a cut: in a region, what was placed apart and is gone since; in the global
plane, the report held against what is charged there.

A binding that is removed is counted in the same entry, so the count is as durable as its removal, and nothing is looked through
for it. Only within a cut, and until its report is written. Called by objects.py and kinds.py.
"""

from __future__ import annotations

from msgspec.structs import replace

from fairlead.authority.judge.context import Context, Effect, put
from fairlead.decide.apart import placed_since_ms, with_ended
from fairlead.decide.merging import held_against
from fairlead.model.kinds.quota import GrantTerm, GrantTermStatus
from fairlead.model.registry import REGION
from fairlead.model.settling import settled


def count_ended(ctx: Context, tenant: str, name: str) -> list[Effect]:
    """The term of the region's leases, where the binding of that name, which goes, was made apart."""
    region = ctx.settings.region
    term: GrantTerm | None = ctx.state.hot("grantterms", "", region) if ctx.settings.plane == REGION else None
    if term is None or placed_since_ms(term, ctx.incarnation, ctx.now_ms) is None:
        return []
    rec = ctx.state.get("bindings", tenant, name)
    if rec is None:
        return []
    status = with_ended(term, ctx.incarnation, ctx.now_ms, rec.decode())
    return [put("grantterms", "", region, settled(replace(term, status=status)))] if status != term.status else []


def told_above(ctx: Context, old: GrantTerm, status: GrantTermStatus) -> GrantTermStatus:
    """What a region says of its term, in the global plane: a report that is new is held against what is charged now."""
    report = status.merge
    if report is None or report == old.status.merge:
        return replace(status, checked=old.status.checked)
    found = {each.tenant: ctx.state.hot("grants", each.tenant, old.spec.region) for each in report.proof}
    grants = {tenant: grant for tenant, grant in found.items() if grant is not None}
    return replace(status, checked=held_against(report, grants, ctx.incarnation, ctx.now_ms))
