"""What ends by itself on the local platform, made anew in time: certificates, their authority, the tokens of its people.

Owns when. All of it when the platform starts, which may be months after it was stopped; certificates also while it runs. The
authority and tokens last longer than anybody should leave a platform running: they wait for the next start. Called by up.py
and links.py, whose process is there as long as the platform is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from fairlead.compose.layout import AUTHORITY_NAME, Layout
from fairlead.ports import Clock, Ids
from fairlead.security.certificates import BadCertificate, instant
from fairlead.security.enrolment import settle
from fairlead.security.files import UnsafeFile
from fairlead.security.folder import AUTHORITY, CertificateFolder, Entry
from fairlead.security.tls import TlsFiles

LOOK_S: Final = 60.0  # a machine that was asleep may wake up after the end of everything


class Renewing:
    def __init__(self, layout: Layout, clock: Clock) -> None:
        self._layout = layout
        self._clock = clock
        self._folder = CertificateFolder(layout.path("pki"), clock)

    def at_start(self, ids: Ids) -> list[str]:
        """What was renewed, in words. Nothing of the platform runs. Raises ValueError where it cannot be done."""
        try:
            for config in sorted(self._layout.path("config").glob("agent-*.json")):
                settle(self._files_of(config.stem))  # a renewal of before must not come back over a newer one
            files = self._folder.renew(AUTHORITY_NAME)
            people = self._layout.renew_tokens(instant(self._clock.wall()), ids)
        except (OSError, ValueError, BadCertificate, UnsafeFile) as error:
            where = self._layout.state
            raise ValueError(f"certificates cannot be renewed: {error}; put that right, or remove {where}") from error
        said = []
        if AUTHORITY in files:
            said.append("the certificate authority has ended or ends soon: made a new one")
            files.remove(AUTHORITY)
        return [*said, *_told("certificates", files), *_told("tokens", people)]

    def look(self) -> list[str]:
        """The same while it runs. Agents renew theirs as long as they can: two of them must not do it at the same time."""
        try:
            wanted = [entry.file for entry in self._folder.entries() if entry.due and self._is_ours(entry)]
            for file in wanted:
                self._folder.rotate(file)
        except (OSError, BadCertificate, UnsafeFile, ValueError) as error:
            return [f"certificates cannot be renewed, which is tried again: {error}"]
        return _told("certificates", wanted)

    async def run(self, say: Callable[[str], None]) -> None:
        while True:
            for line in self.look():
                say(line)
            await self._clock.sleep(LOOK_S)

    def _is_ours(self, entry: Entry) -> bool:
        if entry.presented is None:
            return False
        return entry.presented.named.purpose != "agent" or entry.not_after <= instant(self._clock.wall())

    def _files_of(self, name: str) -> TlsFiles:
        certificate, key = self._folder.files_of(name)
        return TlsFiles(certificate, key, self._folder.authorities)


def _told(what: str, names: list[str]) -> list[str]:
    return [f"renewed {what} that have ended or end soon: {', '.join(names)}"] if names else []
