"""What a placement may say: selectors that mean something, known topology keys, weights in range, no contradictions.

Shared by Workload and SchedulingRequest, which carries a copy. Called by workload.py and work.py in this package.
"""

from __future__ import annotations

import re
from typing import Final

from fairlead.model.kinds.intent import AffinityRule, LabelExpression, Placement, Preference, SpreadRule, Toleration
from fairlead.model.report import Report, shown

TOPOLOGY_KEYS: Final = ("hostname", "zone", "region")
WEIGHT_MAX: Final = 100
SPREAD_MAX: Final = 10_000  # a skew above the largest number of replicas says nothing
RULES_MAX: Final = 64  # of one sort in one placement; each is a column operation per node in every cycle

_ANYWHERE: Final = Placement()
_INTEGER: Final = re.compile(r"-?[0-9]{1,18}")


def check_placement(report: Report, path: str, placement: Placement, slots: int | None) -> None:
    """`slots` is how many there are to place, where that is known."""
    if placement == _ANYWHERE:  # most say nothing, and admission stands in the path of every write
        return
    for field in ("node_labels", "tolerations", "spread", "affinity", "anti_affinity", "preferences"):
        _check_length(report, path, placement, field)
    report.labels(f"{path}.regions.allowed", placement.regions.allowed)
    report.labels(f"{path}.residency.areas", placement.residency.areas)
    report.labels(f"{path}.zones", placement.zones)
    report.within(f"{path}.maxPerNode", placement.max_per_node, 0, SPREAD_MAX)
    _check_minimum(report, path, placement, slots)
    for index, expression in enumerate(placement.node_labels):
        check_expression(report, f"{path}.nodeLabels[{index}]", expression)
    for index, toleration in enumerate(placement.tolerations):
        _check_toleration(report, f"{path}.tolerations[{index}]", toleration)
    report.unique(f"{path}.spread", [rule.topology_key for rule in placement.spread], "topologyKey")
    for index, spread in enumerate(placement.spread):
        _check_spread(report, f"{path}.spread[{index}]", spread)
    for field, rules in (("affinity", placement.affinity), ("antiAffinity", placement.anti_affinity)):
        for index, affinity in enumerate(rules):
            _check_affinity(report, f"{path}.{field}[{index}]", affinity)
    for index, preference in enumerate(placement.preferences):
        _check_preference(report, f"{path}.preferences[{index}]", preference)


def _check_length(report: Report, path: str, placement: Placement, field: str) -> None:
    count = len(getattr(placement, field))
    if count > RULES_MAX:
        name = {"node_labels": "nodeLabels", "anti_affinity": "antiAffinity"}.get(field, field)
        report.add(f"{path}.{name}", f"may have {RULES_MAX} entries, has {count}")


def _check_minimum(report: Report, path: str, placement: Placement, slots: int | None) -> None:
    rule = placement.regions
    if rule.per_region_minimum < 0:
        report.add(f"{path}.regions.perRegionMinimum", f"must be 0 or more, got {rule.per_region_minimum}")
    elif rule.per_region_minimum and not rule.allowed:
        report.add(f"{path}.regions.perRegionMinimum", "needs regions.allowed: name the regions it counts in")
    elif slots is not None and rule.per_region_minimum * len(rule.allowed) > slots:
        wanted = rule.per_region_minimum * len(rule.allowed)
        message = f"times {len(rule.allowed)} regions is {wanted}, more than the {slots} slots there are"
        report.add(f"{path}.regions.perRegionMinimum", message)


def check_expression(report: Report, path: str, expression: LabelExpression) -> None:
    report.label_key(f"{path}.key", expression.key)
    operator, values = expression.operator, expression.values
    if operator not in ("Gt", "Lt"):  # these hold numbers, which may be negative
        for index, value in enumerate(values):
            report.label_value(f"{path}.values[{index}]", value)
    if operator in ("In", "NotIn") and not values:
        report.add(f"{path}.values", f"needs at least one value for operator {operator}")
    elif operator in ("Exists", "DoesNotExist") and values:
        report.add(f"{path}.values", f"must be left out for operator {operator}")
    elif operator in ("Gt", "Lt") and not (len(values) == 1 and _INTEGER.fullmatch(values[0])):
        report.add(f"{path}.values", f"needs exactly one whole number for operator {operator}")


def _check_toleration(report: Report, path: str, toleration: Toleration) -> None:
    if toleration.key:
        report.label_key(f"{path}.key", toleration.key)
    elif toleration.operator != "Exists":
        report.add(f"{path}.operator", "must be Exists where the key is empty, which means every taint")
    if toleration.operator == "Exists" and toleration.value:
        report.add(f"{path}.value", "must be left out for operator Exists")
    report.label_value(f"{path}.value", toleration.value)


def _check_topology_key(report: Report, path: str, key: str) -> None:
    if key not in TOPOLOGY_KEYS:
        report.add(f"{path}.topologyKey", f"must be one of {', '.join(TOPOLOGY_KEYS)}, got {shown(key)}")


def _check_spread(report: Report, path: str, rule: SpreadRule) -> None:
    _check_topology_key(report, path, rule.topology_key)
    report.within(f"{path}.maxSkew", rule.max_skew, 1, SPREAD_MAX)


def _check_affinity(report: Report, path: str, rule: AffinityRule) -> None:
    _check_topology_key(report, path, rule.topology_key)
    report.need(bool(rule.match), f"{path}.match", "needs at least one expression that says which workloads are meant")
    for index, expression in enumerate(rule.match):
        check_expression(report, f"{path}.match[{index}]", expression)
    if rule.required:
        report.need(rule.weight == 0, f"{path}.weight", "must be left out where required is true")
    else:
        report.within(f"{path}.weight", rule.weight, 1, WEIGHT_MAX)


def _check_preference(report: Report, path: str, preference: Preference) -> None:
    report.within(f"{path}.weight", preference.weight, 1, WEIGHT_MAX)
    if preference.locality is None and not preference.labels:
        report.add(path, "needs locality or labels: say what is preferred")
    if preference.locality is not None:
        report.labels(f"{path}.locality.regions", preference.locality.regions)
        report.labels(f"{path}.locality.zones", preference.locality.zones)
        if not preference.locality.regions and not preference.locality.zones:
            report.add(f"{path}.locality", "needs regions or zones")
    for index, expression in enumerate(preference.labels):
        check_expression(report, f"{path}.labels[{index}]", expression)
