"""What a Workload must keep: counts that agree with each other, a template that can run, and what it may never change.

Placement's rules are in placement.py. Called through RULES in this package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final, Literal, NamedTuple

from msgspec.structs import replace

from fairlead.decide.admission.mounts import check_mounts
from fairlead.decide.admission.placement import check_placement
from fairlead.model.kinds.intent import (
    Autoscaler,
    AutoscalerMetric,
    EnvVar,
    Port,
    Probe,
    Probes,
    ResourceSpec,
    RolloutRule,
    Template,
    Workload,
    WorkloadSpec,
)
from fairlead.model.report import COUNT_MAX, SECONDS_MAX, Ranges, Report, shown
from fairlead.model.resources import SHARE_WHOLE, DeviceAsk, Resources

REPLICAS_MAX: Final = 10_000
COMPLETIONS_MAX: Final = 1_000_000
DEVICES_MAX: Final = 1_024  # of one resource for one slot: more than any node has
TOTAL_BITS: Final = 62  # sums are kept in signed 64-bit columns; one bit is left for an addition that is then refused
PORT_MAX: Final = 65_535
SURGE_MAX: Final = 5_000  # slot indices are numbered in blocks: beyond these stand the recovery slots (assigning.py)

_ENV_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,252}")
_PORT_NAME: Final = re.compile(r"(?=.*[a-z])[a-z0-9](?:[-a-z0-9]{0,13}[a-z0-9])?")

_FIGURE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_:.-]{0,127}", re.ASCII)
_PAGE: Final = re.compile(r"/[!-~]{0,511}", re.ASCII)
FULL_MIN: Final = 1e-6  # what a replica says that can take no more, in a unit of its own
FULL_MAX: Final = 1e12

_RANGES: Final = Ranges(
    ("replicas", 0, REPLICAS_MAX),
    ("start_target_seconds", 0, SECONDS_MAX),
    ("recovery.min_serving", 0, REPLICAS_MAX),
    ("recovery.deadline_seconds", 1, SECONDS_MAX),
    ("disruption.min_serving", 0, REPLICAS_MAX),
    ("disruption.drain_timeout_seconds", 0, SECONDS_MAX),
    ("rollout.max_surge", 0, SURGE_MAX),
    ("rollout.max_unavailable", 0, REPLICAS_MAX),
    ("rollout.progress_deadline_seconds", 1, SECONDS_MAX),
    ("freshness.max_observation_age_seconds", 0, SECONDS_MAX),
    ("template.max_restarts", 0, COUNT_MAX),
    ("template.stop_grace_seconds", 0, SECONDS_MAX),
)
_JOB_RANGES: Final = Ranges(
    ("completions", 1, COMPLETIONS_MAX),
    ("parallelism", 1, REPLICAS_MAX),
    ("retries", 0, COUNT_MAX),
)
_PROBE_RANGES: Final = Ranges(
    ("initial_delay_seconds", 0, SECONDS_MAX),
    ("period_seconds", 0.1, SECONDS_MAX),
    ("timeout_seconds", 0.1, SECONDS_MAX),
    ("success_threshold", 1, COUNT_MAX),
    ("failure_threshold", 1, COUNT_MAX),
)


def execution_of(spec: WorkloadSpec) -> Literal["Replicated", "Exclusive"]:
    """What an absent `execution` means: a job never runs twice at once unless it says that it may."""
    if spec.execution is not None:
        return spec.execution
    return "Exclusive" if spec.job is not None else "Replicated"


def template_of(spec: WorkloadSpec) -> Template:
    """What an absent `restartPolicy` means: a job whose process ended well is done. Of a service nothing is said, so that one
    who spells out what holds anyway restarts nothing."""
    policy = spec.template.restart_policy
    if spec.job is not None:
        return spec.template if policy is not None else replace(spec.template, restart_policy="OnFailure")
    return spec.template if policy != "Always" else replace(spec.template, restart_policy=None)


def rollout_of(spec: WorkloadSpec) -> RolloutRule:
    """The rule as it holds: an Exclusive slot's next life begins when the last one has ended, so none has another beside it, and
    one is missing meanwhile."""
    rule = spec.rollout
    if spec.job is not None or execution_of(spec) != "Exclusive":
        return rule
    return replace(rule, max_surge=0, max_unavailable=max(1, rule.max_unavailable))


class NotRecovered(NamedTuple):
    """Of a workload for which recovery orders nothing, whatever minimum it names."""

    why: str
    instead: str  # what whoever wants it recovered can do


def not_recovered(spec: WorkloadSpec) -> NotRecovered | None:
    """None: what it lacks of its minimum is ordered elsewhere when a region is lost."""
    if spec.job is not None:
        return NotRecovered("a job is not recovered: what it has in a lost region waits for that", "run it as a service")
    if spec.gang:
        return NotRecovered("a gang is not recovered: it starts whole, recovery orders what is missing", "leave out gang")
    if execution_of(spec) == "Exclusive" and not is_alone(spec):
        why = "exclusive: region is not recovered: it may run on where nobody hears it"
        return NotRecovered(why, "make it anew with exclusive: global, or with execution: Replicated")
    return None


def remarks(spec: WorkloadSpec, rule: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """What is accepted and does not hold as it is said, by path. `rule`: the words of spec.rollout, since what is left out says
    nothing."""
    yield from _recovery_remarks(spec)
    yield from _rollout_remarks(spec, rule)


def _recovery_remarks(spec: WorkloadSpec) -> Iterator[tuple[str, str]]:
    least, budget = spec.recovery.min_serving, spec.recovery.budget_name
    found = not_recovered(spec)
    if found is not None and (least or budget):
        yield "spec.recovery", f"{found.why}; {found.instead}, or leave out recovery"
    elif budget and not least:
        yield "spec.recovery.minServing", "is 0: nothing is recovered; say how many are to serve, or leave out recovery"


def _rollout_remarks(spec: WorkloadSpec, rule: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    if spec.job is not None or execution_of(spec) != "Exclusive":
        return
    if rule.get("maxSurge"):
        yield "spec.rollout.maxSurge", "counts as 0 with execution: Exclusive: no slot has another beside it"
    if rule.get("maxUnavailable") == 0:
        yield (
            "spec.rollout.maxUnavailable",
            "counts as 1 with execution: Exclusive: a slot ends before its next life begins",
        )
    if spec.replicas and spec.disruption.min_serving >= spec.replicas:
        yield (
            "spec.disruption.minServing",
            "lets no slot leave, in drains and rollouts: of what is Exclusive none starts first",
        )


def is_alone(spec: WorkloadSpec) -> bool:
    """Each of its slots runs once in the world (P11)."""
    return spec.exclusive == "global" and execution_of(spec) == "Exclusive"


def slots_of(spec: WorkloadSpec) -> int:
    """How many slots run at once when all is well."""
    return max(spec.job.parallelism if spec.job is not None else spec.replicas, 0)


def fewest_slots(spec: WorkloadSpec) -> tuple[int, str]:
    """As many as the workload itself says it must have, and which of its fields says so."""
    regions = spec.placement.regions
    return max(
        (spec.disruption.min_serving, "disruption.minServing"),
        (spec.recovery.min_serving, "recovery.minServing"),
        (regions.per_region_minimum * len(regions.allowed), "perRegionMinimum"),
    )


def check_autoscaler(report: Report, new: Autoscaler, old: Autoscaler | None) -> None:
    spec = new.spec
    report.subdomain("spec.workload", spec.workload)
    report.within("spec.minReplicas", spec.min_replicas, 1, REPLICAS_MAX)
    report.within("spec.maxReplicas", spec.max_replicas, max(1, spec.min_replicas), REPLICAS_MAX)
    report.within("spec.targetPercent", spec.target_percent, 1, 100)
    report.within("spec.surge", spec.surge, 0, SURGE_MAX)
    report.within("spec.upWaitSeconds", spec.up_wait_seconds, 1, SECONDS_MAX)
    report.within("spec.downWindowSeconds", spec.down_window_seconds, 1, SECONDS_MAX)
    if spec.metric is not None:
        _check_metric(report, "spec.metric", spec.metric)


def _check_metric(report: Report, path: str, metric: AutoscalerMetric) -> None:
    if not _FIGURE.fullmatch(metric.name):
        report.add(
            f"{path}.name", f"must be the name of a figure, such as http_busy_ratio or load.busy, got {shown(metric.name)}"
        )
    if not _PAGE.fullmatch(metric.path):
        report.add(f"{path}.path", f"must start with '/' and hold no spaces, got {shown(metric.path)}")
    if metric.port and not _PORT_NAME.fullmatch(metric.port):
        report.add(f"{path}.port", f"must be the name of a port, got {shown(metric.port)}")
    report.within(f"{path}.full", metric.full, FULL_MIN, FULL_MAX)


def check_workload(report: Report, new: Workload, old: Workload | None) -> None:
    spec = new.spec
    report.ranges("spec", spec, _RANGES)
    _check_counts(report, spec)
    _check_template(report, spec.template)
    check_resources(report, "spec.resources", spec.resources)
    _check_totals(report, spec)
    check_placement(report, "spec.placement", spec.placement, slots_of(spec))
    report.label("spec.workloadClass", spec.workload_class)
    if spec.priority_class_name:
        report.label("spec.priorityClassName", spec.priority_class_name)
    if spec.recovery.budget_name:
        report.subdomain("spec.recovery.budgetName", spec.recovery.budget_name)
    if old is not None:
        report.unchanged("spec.execution", execution_of(spec), execution_of(old.spec))
        report.unchanged("spec.exclusive", spec.exclusive, old.spec.exclusive)
        if (spec.job is None) != (old.spec.job is None):
            was = "a service" if old.spec.job is None else "a job"
            report.add("spec.job", f"may not change: this workload is {was}; create another one")


def _check_counts(report: Report, spec: WorkloadSpec) -> None:
    slots, counted = slots_of(spec), "parallelism" if spec.job is not None else "replicas"
    for field, least in (("disruption", spec.disruption.min_serving), ("recovery", spec.recovery.min_serving)):
        if least > slots:
            report.add(f"spec.{field}.minServing", f"may be at most {counted}, which is {slots}, got {least}")
    rule = rollout_of(spec)
    if rule.max_surge == 0 and rule.max_unavailable == 0:
        report.add("spec.rollout", "maxSurge and maxUnavailable may not both be 0: no rollout could take a step")
    if spec.rollout.min_ready_seconds is not None:
        report.within("spec.rollout.minReadySeconds", spec.rollout.min_ready_seconds, 0, SECONDS_MAX)
    if spec.exclusive == "global" and execution_of(spec) != "Exclusive":
        report.add("spec.exclusive", "global needs execution: Exclusive; leave it out or set execution")
    if spec.job is not None:
        report.ranges("spec.job", spec.job, _JOB_RANGES)
        if spec.job.parallelism > spec.job.completions:
            message = f"may be at most completions, which is {spec.job.completions}, got {spec.job.parallelism}"
            report.add("spec.job.parallelism", message)
        if spec.template.restart_policy == "Always":
            message = "must be OnFailure or Never for a job, which would never be done; OnFailure where it is left out"
            report.add("spec.template.restartPolicy", message)
        if spec.replicas != 1:
            report.add("spec.replicas", "must be left out for a job; job.parallelism says how many run at once")


def _check_totals(report: Report, spec: WorkloadSpec) -> None:
    slots = slots_of(spec)
    for name, amount in spec.resources.requests.amounts().items():
        if slots * amount >= 1 << TOTAL_BITS:
            report.add(f"spec.resources.requests.{name[:80]}", f"times {slots} slots is too large; the sum must stay below 2^62")


def check_resources(report: Report, path: str, resources: ResourceSpec) -> None:
    check_requests(report, f"{path}.requests", resources.requests)
    check_devices(report, f"{path}.devices", resources.devices)


def check_requests(report: Report, path: str, requests: Resources) -> None:
    report.amounts(path, requests)
    if requests.cpu == 0 and requests.memory == 0:
        report.add(path, "must ask for cpu or memory: what asks for nothing would be packed without end")


def check_devices(report: Report, path: str, devices: tuple[DeviceAsk, ...]) -> None:
    report.unique(path, [ask.resource for ask in devices], "resource")
    for index, ask in enumerate(devices):
        here = f"{path}[{index}]"
        report.label_key(f"{here}.resource", ask.resource)
        report.within(f"{here}.count", ask.count, 1, DEVICES_MAX)
        report.within(f"{here}.shareThousandths", ask.share_thousandths, 1, SHARE_WHOLE)
        if ask.share_thousandths < SHARE_WHOLE and ask.count != 1:
            report.add(f"{here}.count", f"must be 1 where a device is shared, got {ask.count}")
        report.unique(f"{here}.models", ask.models)
        for number, model in enumerate(ask.models):
            report.need(bool(model), f"{here}.models[{number}]", "is empty; name a model, or leave models out for any")


def _check_template(report: Report, template: Template) -> None:
    path = "spec.template"
    report.label(f"{path}.driver", template.driver)
    if template.driver == "process" and not (template.command and template.command[0]):
        report.add(f"{path}.command", "is required for driver process: the program and its arguments, as a list")
    for index, word in enumerate(template.command):
        _check_no_nul(report, f"{path}.command[{index}]", word)
    _check_no_nul(report, f"{path}.workingDir", template.working_dir)
    _check_env(report, f"{path}.env", template.env)
    _check_ports(report, f"{path}.ports", template.ports)
    _check_probes(report, f"{path}.probes", template.probes, template.ports)
    check_mounts(report, f"{path}.files", template.files)


def _check_no_nul(report: Report, path: str, text: str) -> None:
    report.need("\0" not in text, path, "may not hold a NUL character: no process can be given one")


def _check_env(report: Report, path: str, env: tuple[EnvVar, ...]) -> None:
    report.unique(path, [variable.name for variable in env], "name")
    for index, variable in enumerate(env):
        if not _ENV_NAME.fullmatch(variable.name):
            message = f"must be letters, digits, '_', '-' and '.', not starting with a digit, got {shown(variable.name)}"
            report.add(f"{path}[{index}].name", message)
        _check_no_nul(report, f"{path}[{index}].value", variable.value)


def _check_ports(report: Report, path: str, ports: tuple[Port, ...]) -> None:
    seen: dict[tuple[object, ...], int] = {}
    for index, port in enumerate(ports):
        report.within(f"{path}[{index}].port", port.port, 0, PORT_MAX)
        if port.name and not _PORT_NAME.fullmatch(port.name):
            message = f"must be 1 to 15 of a-z, 0-9 and '-', with at least one letter, got {shown(port.name)}"
            report.add(f"{path}[{index}].name", message)
        # Port 0 is "pick one", so it may repeat; a name, or a number within one protocol, may not.
        for field, value in (
            ("name", (port.name,) if port.name else ()),
            ("port", (port.port, port.protocol) if port.port else ()),
        ):
            if value and value in seen:
                report.add(f"{path}[{index}].{field}", f"repeats {path}[{seen[value]}]; each may stand here once")
            elif value:
                seen[value] = index
    if len(ports) > 1:
        for index, port in enumerate(ports):
            report.need(bool(port.name), f"{path}[{index}].name", "is required where there is more than one port")


def _check_probes(report: Report, path: str, probes: Probes, ports: tuple[Port, ...]) -> None:
    for name, probe in (("startup", probes.startup), ("readiness", probes.readiness), ("liveness", probes.liveness)):
        if probe is not None:
            _check_probe(report, f"{path}.{name}", probe, ports)


def _check_probe(report: Report, path: str, probe: Probe, ports: tuple[Port, ...]) -> None:
    report.ranges(path, probe, _PROBE_RANGES)
    actions = [a for a in (probe.http_get, probe.tcp_socket, probe.exec) if a is not None]
    if len(actions) != 1:
        report.add(path, f"needs exactly one of httpGet, tcpSocket and exec, has {len(actions) or 'none'}")
    if probe.http_get is not None:
        _check_probe_port(report, f"{path}.httpGet.port", probe.http_get.port, ports)
        if not probe.http_get.path.startswith("/"):
            report.add(f"{path}.httpGet.path", f"must start with '/', got {shown(probe.http_get.path)}")
    if probe.tcp_socket is not None:
        _check_probe_port(report, f"{path}.tcpSocket.port", probe.tcp_socket.port, ports)
    if probe.exec is not None:
        if not (probe.exec.command and probe.exec.command[0]):
            report.add(f"{path}.exec.command", "is required: the program and its arguments, as a list")
        for index, word in enumerate(probe.exec.command):
            _check_no_nul(report, f"{path}.exec.command[{index}]", word)


def _check_probe_port(report: Report, path: str, wanted: str, ports: tuple[Port, ...]) -> None:
    """A port's name, its number, or nothing for the first one. Any other number would probe somebody else's process."""
    known = {port.name for port in ports if port.name} | {str(port.port) for port in ports if port.port}
    if not wanted:
        report.need(bool(ports), path, "has nothing to probe: the template has no ports")
    elif wanted not in known:
        choices = ", ".join(sorted(known)) or "none"
        report.add(path, f"must be the name or number of a port of the template ({choices}), got {shown(wanted)}")
