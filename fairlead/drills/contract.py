"""What a drill is: a name, what it does, what it expects, and the steps. Each is a small class in a module beside this one; the
list of all is catalogue.py.

A drill states and measures; it never decides how long to go on, cleans nothing up and prints nothing: scene.py and running.py do.
"""

from __future__ import annotations

import abc
from typing import ClassVar, Final

from fairlead.drills.census import Workload
from fairlead.drills.scene import Scene

RISK: Final[Workload] = ("risk", "risk-api")  # the critical sample
BILLING: Final[Workload] = ("billing", "billing-api")  # the steady sample


class Drill(abc.ABC):
    name: ClassVar[str]
    does: ClassVar[str]  # one sentence
    expects: ClassVar[tuple[str, ...]]  # one sentence a check
    watched: ClassVar[tuple[Workload, ...]] = (RISK, BILLING)  # counted and probed from outside all the while
    about_s: ClassVar[int] = 60  # how long it takes, clean-up included, on a platform that runs

    @abc.abstractmethod
    async def run(self, scene: Scene) -> None:
        """The steps. Checks that fail are told to the scene; an exception is a failed drill too."""


def check_unhurt(scene: Scene, why: str) -> None:
    """No client of the samples saw an error."""
    for workload in (RISK, BILLING):
        scene.check_errors(workload, 0, why)
