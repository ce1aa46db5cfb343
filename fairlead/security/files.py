"""Files that hold keys: written for their owner alone and in one step, refused when others could have read them."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Final

PRIVATE = 0o600
PUBLIC = 0o644
_OTHERS = 0o077
_PASSING: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})


class UnsafeFile(Exception):
    """A key that others may have read is a key no more. Says what to do."""


def write_private(path: Path, data: bytes) -> None:
    write(path, data, PRIVATE)


def write(path: Path, data: bytes, mode: int = PUBLIC) -> None:
    """All or nothing, also for readers: a server that reloads must never see half a key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    # O_EXCL and the mode from the first moment: nobody can have opened it before it was made private.
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            os.fchmod(file.fileno(), mode)  # the process's umask may have taken bits that a public file needs
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def read_private(path: Path) -> bytes:
    """Looks at the open file, not at its name: what is checked is what is read."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise UnsafeFile(f"{path} is no plain file")
        if about.st_mode & _OTHERS:
            detail = f"{path} can be read or written by others (mode {stat.S_IMODE(about.st_mode):04o})"
            raise UnsafeFile(f"{detail}: run chmod 600, and replace the key if the machine is shared")
        if about.st_uid not in (os.geteuid(), 0):
            raise UnsafeFile(f"{path} belongs to another user (uid {about.st_uid})")
        return file.read()


def mark(path: Path | None) -> tuple[int, ...]:
    """Changes whenever the file could be read otherwise than before: also by a new owner or mode, which many a copied key gets a
    moment after it was put in its place. Times alone do not tell two changes of the same tick apart."""
    try:
        about = os.stat(path) if path is not None else None
    except OSError:
        about = None
    if about is None:
        return ()
    return about.st_mtime_ns, about.st_ctime_ns, about.st_size, about.st_ino, about.st_mode, about.st_uid, about.st_gid


def passes(error: Exception) -> bool:
    """Of this moment and not of the file: worth another try while the file is the same."""
    return type(error) is OSError and error.errno in _PASSING
