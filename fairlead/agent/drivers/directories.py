"""Where an instance lives on disk: its working directory, its output, a directory per run, what the agent must remember of it.

Every step goes through a directory descriptor and follows no link, so an instance cannot lead the agent out of its directory.
Never starts anything. Called by process.py.

    instances/TENANT_NAME_TOKEN/
      kept        what was started, for an agent that comes later
      work/       the instance's own: working directory, home, mounted files
      lasts       until when it may run, where it ends with the lease of a grant (P13)
      logs/       stdout.OFFSET, stderr.OFFSET: segments, each named by the offset of its first byte
      run.N/      started, exit, control: between agent and shim
    instances/gone.INODE/    what was one, and is being cleared away (clearing.py)
"""

from __future__ import annotations

import contextlib
import logging
import math
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Literal

import msgspec

from fairlead.agent.drivers.contract import Chunk, Exit, InstanceId, MountedFile, Stream, parse_instance_id
from fairlead.ports import KeptFile, write_all

log = logging.getLogger(__name__)

PASSABLE: Final = 0o111
EXIT_BYTES: Final = 4096  # a thousand characters of message at most, and some numbers
GONE: Final = "gone."  # how directories are named that are being cleared away
_FOLDER: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class Kept(msgspec.Struct, frozen=True, gc=False):
    """Enough to find a run again, to probe it and to start it once more. No mounted files: those are read anew."""

    id: InstanceId
    run: int
    env: dict[str, str]
    ports: dict[str, int] = {}
    working_dir: str = ""
    exclusive: Literal["", "region", "global"] = ""
    uid: int | None = None
    cpu_milli: int = 0
    memory_bytes: int = 0
    template: bytes = b""
    secrets: tuple[str, ...] = ()  # paths of mounted files that must not outlive the instance


_decode = msgspec.msgpack.Decoder(Kept).decode


@contextmanager
def opened(path: str, dir_fd: int | None = None) -> Iterator[int]:
    fd = os.open(path, _FOLDER, dir_fd=dir_fd)
    try:
        yield fd
    finally:
        os.close(fd)


def open_below(top: int, path: str, make: bool = False, uid: int | None = None) -> int:
    """The directory at `path` below `top`, step by step, no link followed, `..` refused. The caller closes it."""
    current = os.dup(top)
    try:
        for step in path.split("/"):
            if step in ("", "."):
                continue
            if step == "..":
                raise PermissionError(f"{path!r} leads out of the instance's directory")
            made = False
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(step, 0o750, dir_fd=current)
                    made = True
            below = os.open(step, _FOLDER, dir_fd=current)
            os.close(current)
            current = below
            if made and uid is not None:
                # What was opened, not what bears the name: an instance that is probed runs meanwhile, and may change that.
                os.fchown(current, uid, uid)
    except BaseException:
        os.close(current)
        raise
    return current


def _raise(error: OSError) -> None:
    raise error


def make_passable(path: Path, mode: int = 0o755) -> None:
    """The directory, and that instances, which have users of their own, get through it: a umask may have taken that away."""
    made = [folder for folder in (path, *path.parents) if not folder.exists()]
    path.mkdir(mode, parents=True, exist_ok=True)
    for folder in {path, *made}:
        found = stat.S_IMODE(folder.stat().st_mode)
        if found & PASSABLE != PASSABLE:
            with contextlib.suppress(PermissionError):  # it is another's, as where somebody only looks
                folder.chmod(found | PASSABLE)


class Directories:
    def __init__(self, state_dir: Path) -> None:
        self._top = state_dir / "instances"
        make_passable(state_dir)
        make_passable(self._top, 0o711)  # who else runs here is nobody's business

    @property
    def marker(self) -> str:
        """Tells this agent's instances from those of others on the machine."""
        found = self._top.stat()
        return f"{found.st_dev:x}.{found.st_ino:x}"

    def path(self, id: InstanceId) -> Path:
        return self._top / id.text

    def all(self) -> list[Kept]:
        """Raises OSError where it cannot be told what an earlier agent started: it may be running."""
        found = []
        for entry in sorted(os.listdir(self._top)):
            id = parse_instance_id(entry)
            if id is None:
                continue
            try:
                found.append(_decode((self._top / entry / "kept").read_bytes()))
            except NotADirectoryError:
                continue
            except (FileNotFoundError, msgspec.DecodeError):
                self.put_aside(id)  # never got as far as a run
        return found

    def prepare(self, kept: Kept, files: tuple[MountedFile, ...]) -> Path:
        """The directories of one run, the mounted files, and the record of it. Answers with the run's directory."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self.path(kept.id), 0o711)
        with opened(str(self.path(kept.id))) as home:
            os.fchmod(home, 0o711)
            for name, mode in (("work", 0o750), ("logs", 0o700), (f"run.{kept.run}", 0o700)):
                with contextlib.suppress(FileExistsError):
                    os.mkdir(name, mode, dir_fd=home)
            with opened("work", home) as work:
                if kept.uid is not None:
                    os.fchown(work, kept.uid, kept.uid)
                for file in files:
                    self._mount(work, file, kept.uid)
            run = f"run.{kept.run}"
            with contextlib.suppress(FileExistsError):
                os.mkfifo(f"{run}/control", 0o600, dir_fd=home)
            self._reserve(f"{run}/exit.new", home)
        self._keep(kept)
        return self.path(kept.id) / run

    @staticmethod
    def _reserve(path: str, home: int) -> None:
        """Room for the last word of the shim, who writes over it: how a run ended is told on a full disk too."""
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=home)
        try:
            write_all(fd, bytes(EXIT_BYTES))
        finally:
            os.close(fd)

    def _mount(self, work: int, file: MountedFile, uid: int | None) -> None:
        folder_path, _, name = file.path.rpartition("/")
        if not name or name in (".", ".."):
            raise PermissionError(f"{file.path!r} names no file")
        folder = open_below(work, folder_path, make=True, uid=uid)
        try:
            fresh = f".{name}.new"
            with contextlib.suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=folder)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            fd = os.open(fresh, flags, 0o400 if file.secret else 0o440, dir_fd=folder)
            try:
                write_all(fd, file.data)
                if uid is not None:
                    os.fchown(fd, uid, uid)
                os.rename(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
            except BaseException:
                os.unlink(fresh, dir_fd=folder)  # half of a secret is one too
                raise
            finally:
                os.close(fd)
        finally:
            os.close(folder)

    def lasts_file(self, id: InstanceId) -> Path:
        return self.path(id) / "lasts"

    def prolong(self, id: InstanceId, lasts: float) -> None:
        """Not made durable: a machine that lost power runs nothing."""
        KeptFile(self.lasts_file(id)).write(f"{lasts:.3f}\n".encode(), durable=False)

    def lasts(self, id: InstanceId) -> float:
        """Without such a file it was started to stay; one that cannot be read allows nothing."""
        try:
            return float(self.lasts_file(id).read_bytes())
        except FileNotFoundError:
            return math.inf
        except (OSError, ValueError):
            return 0.0

    def tidy(self, kept: Kept) -> None:
        for path in kept.secrets:
            folder_path, _, name = path.rpartition("/")
            with contextlib.suppress(OSError), opened(str(self.path(kept.id) / "work")) as work:
                folder = open_below(work, folder_path)
                try:
                    os.unlink(name, dir_fd=folder)
                finally:
                    os.close(folder)

    def hand_over(self, kept: Kept, uid: int) -> None:
        """From its next run on it is that user's, with what it has made. Nothing of it runs. A file with a second name stays as
        it is: the other may be one of the machine's own. Raises OSError, RecursionError."""
        with opened(str(self.path(kept.id))) as home:
            for _, folders, files, folder in os.fwalk("work", dir_fd=home, follow_symlinks=False, onerror=_raise):
                os.fchown(folder, uid, uid)
                for name in (*folders, *files):
                    found = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    if stat.S_ISLNK(found.st_mode) or (stat.S_ISREG(found.st_mode) and found.st_nlink == 1):
                        os.chown(name, uid, uid, dir_fd=folder, follow_symlinks=False)
        self._keep(msgspec.structs.replace(kept, uid=uid))

    def _keep(self, kept: Kept) -> None:
        path = self.path(kept.id) / "kept"
        fresh = path.with_suffix(".new")
        fresh.touch(mode=0o600)
        fresh.write_bytes(msgspec.msgpack.encode(kept))
        fresh.rename(path)

    def open_work(self, kept: Kept) -> int:
        """The working directory: the instance's own, a directory below it, or, given with a leading slash, one of the machine's,
        which the instance then enters with its own rights."""
        if kept.working_dir.startswith("/"):
            return os.open(kept.working_dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        with opened(str(self.path(kept.id) / "work")) as work:
            return open_below(work, kept.working_dir, make=True, uid=kept.uid)

    def put_aside(self, id: InstanceId) -> Path | None:
        """In one step, however much lies in it. Answers with what is to be cleared away; what stays, the next agent finds."""
        try:
            aside = self._top / f"{GONE}{self.path(id).stat().st_ino:x}"  # as no other that is still there
            self.path(id).rename(aside)
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("%s cannot be put aside: %s", self.path(id), error)
            return None
        return aside

    def aside(self) -> list[Path]:
        return [self._top / entry for entry in sorted(os.listdir(self._top)) if entry.startswith(GONE)]

    def logs(self, id: InstanceId, stream: Stream, offset: int, limit: int) -> Chunk:
        folder = self.path(id) / "logs"
        starts = sorted(int(name.rpartition(".")[2]) for name in os.listdir(folder) if name.startswith(stream + "."))
        if not starts:
            return Chunk(0, b"", 0)
        end = starts[-1] + (folder / f"{stream}.{starts[-1]:015d}").stat().st_size
        at = max(starts[0], end + offset if offset < 0 else min(offset, end))
        first, data = at, bytearray()
        for start, until in zip(starts, [*starts[1:], end], strict=True):
            if until <= at or len(data) >= limit:
                continue
            if start > at:  # a gap: a segment that has just gone, or that lost its end when the machine lost power
                if data:
                    break  # offsets of what was read must stay true; whoever goes on from here begins after the gap
                first = at = start
            with contextlib.suppress(FileNotFoundError), open(folder / f"{stream}.{start:015d}", "rb") as file:
                file.seek(at - start)
                data += file.read(min(limit - len(data), until - at))
                at = first + len(data)
        return Chunk(first, bytes(data), at)


def parse_exit(folder: Path) -> Exit | None:
    """What a shim wrote into the directory of its run; None: nothing, or not all of it."""
    try:
        code, cause, _, *message = (folder / "exit").read_text().rstrip("\n").split(" ", 3)
    except (OSError, ValueError):
        return None
    return msgspec.convert({"code": int(code), "cause": cause, "message": message[0] if message else ""}, Exit)


def send_order(folder: Path, order: str) -> bool:
    """False: there is no shim to hear it. One that is ending will be told to be gone."""
    try:
        fd = os.open(folder / "control", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, order.encode())
        finally:
            os.close(fd)
    except OSError:
        return False
    return True
