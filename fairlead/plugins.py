"""Finds the plug-ins that are installed and imports them: entry points of the groups fairlead.gates, .scores and .extensions.

Importing is I/O and runs other people's code, so it happens here, once, when a process starts, and never in a decision. What is
broken is left out and reported; a policy revision that names it is refused by the plane, which is where it matters. Called by the
composition root, which hands the registry to all who judge or try policies; never by the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from fairlead.decide.plugins import BUILT_INS, SORTS, Registry, Sort

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUPS: Final[dict[Sort, str]] = {sort: f"fairlead.{sort}" for sort in SORTS}
_TO_DO: Final = "repair or uninstall that package, then start again"
_WORDS_MAX: Final = 300  # of what an import raised: some messages are pages


class Plugin(NamedTuple):
    name: str
    package: str  # with its version


class Loaded(NamedTuple):
    registry: Registry = BUILT_INS
    taken: tuple[Plugin, ...] = ()
    left_out: tuple[Plugin, ...] = ()
    faults: tuple[str, ...] = ()  # a line about each that was left out


NO_PLUGINS: Final = Loaded()


def load_plugins(registry: Registry = BUILT_INS) -> Loaded:
    from importlib import metadata  # Here, not above: whoever only hands plug-ins on, as the simulator does, needs none of it.

    taken: list[Plugin] = []
    left_out: list[Plugin] = []
    faults: list[str] = []
    installed = metadata.entry_points()  # once: it looks at every package there is
    for sort, group in GROUPS.items():
        # In order of name: which of two that collide is taken must not depend on the order of directories.
        for point in sorted(installed.select(group=group), key=lambda point: (point.name, point.value)):
            found = Plugin(point.name, _package_of(point))
            registry, wrong = _with(registry, sort, point)
            if wrong:
                left_out.append(found)
                faults.append(f"{wrong} (entry point {point.value} of {found.package}): {_TO_DO}")
            else:
                taken.append(found)
    return Loaded(registry, tuple(taken), tuple(left_out), tuple(faults))


def _with(registry: Registry, sort: Sort, point: EntryPoint) -> tuple[Registry, str]:
    """This and the plug-in; or this, and why not."""
    try:
        registry, wrong = registry.with_plugins([(sort, point.name, point.load())])
    except (Exception, SystemExit) as error:  # whatever its code raises is its own fault, not a reason to stop
        return registry, f"{sort[:-1]} plug-in {point.name!r}: it cannot be loaded: {_told(error)}"
    return registry, "; ".join(wrong)


def _package_of(point: EntryPoint) -> str:
    """As `pip uninstall` and a person know it."""
    found = point.dist
    if found is None or not found.metadata["Name"]:
        return "a package without a name"
    return f"{found.metadata['Name']} {found.metadata['Version']}"


def _told(error: BaseException) -> str:
    """In one line."""
    words = " ".join(str(error).split())
    return f"{type(error).__name__}: {words[:_WORDS_MAX]}" if words else type(error).__name__
