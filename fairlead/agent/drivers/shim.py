"""The small process between the agent and one instance: starts it, reaps it, keeps its output, outlives the agent, and ends
one that is Exclusive or provisional by itself when its fence time comes. Talks to the agent alone, through files and one FIFO.

A program of its own (`python -I -S shim.py`), so it imports the standard library alone and nothing of Fairlead. The agent hands
it a marshalled dictionary on standard input; process.py says what is in it. All descendants stay below the shim: it is their
subreaper, so a double fork comes back to it, and when it has no child left the whole tree is gone: it writes `exit` and ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import marshal
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Iterable
from typing import Any, NoReturn

PR_SET_PDEATHSIG, PR_SET_NAME, PR_CAPBSET_DROP, PR_SET_CHILD_SUBREAPER = 1, 15, 24, 36
PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 38, 47, 4
CAPABILITY_VERSION_3, CAPABILITIES_MAX = 0x20080522, 64
FENCE_POLL_S = 0.5  # a sleep stops while the machine sleeps; the clock it is compared with does not
LOOK_S = 5.0  # between two looks whether anybody could still find this run
CHUNK = 65536
MARK_S = 1.0  # between two marks of time in a stream of output
TIMES_BYTES, TIMES_SEGMENTS = 2048 * 32, 4  # marks of 32 bytes: more than two hours of output in every second
EXIT_TRIES, EXIT_PAUSE_S = 60, 1.0  # of a disk that takes nothing: it may be cleaned up, or be read again by then

_libc = ctypes.CDLL(None, use_errno=True)


def now() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def start_time(pid: int) -> int:
    """0: it is gone."""
    with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", "rb") as file:
        return int(file.read().rpartition(b")")[2].split()[19])
    return 0


def signal_each(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def fence_time(path: str, column: int) -> float:
    """Up to when a lease allows an instance to run. A file that cannot be read allows nothing."""
    try:
        with open(path, "rb") as file:
            return float(file.read().split()[column])
    except (OSError, ValueError, IndexError):
        return 0.0


def write_atomically(folder: int, name: str, text: str) -> None:
    """Over what lies there, which the agent may have reserved: cut to its length at the end, it asks for no room of its own."""
    file = os.open(f"{name}.new", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600, dir_fd=folder)
    try:
        data = text.encode()
        if os.write(file, data) < len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.ftruncate(file, len(data))
    finally:
        os.close(file)
    os.rename(f"{name}.new", name, src_dir_fd=folder, dst_dir_fd=folder)


def leave_word(folder: int, text: str) -> None:
    for _ in range(EXIT_TRIES):
        if os.fstat(folder).st_nlink == 0:
            return  # its directory is gone
        with contextlib.suppress(OSError):
            write_atomically(folder, "exit", text)
            return
        time.sleep(EXIT_PAUSE_S)


class Log:
    """One stream of output in segments, each named by the offset of its first byte. The oldest go; the instance never waits."""

    def __init__(self, folder: int, stream: str, segment_bytes: int, segments_max: int) -> None:
        self._folder, self._stream = folder, stream
        self._segment_bytes, self._segments_max = segment_bytes, segments_max
        self._open(max((int(name.rpartition(".")[2]) for name in self._names()), default=0))
        self._times: Log | None = None
        self._marked = 0.0

    def keep_times(self) -> None:
        """From now on another stream, `times.STREAM`, says when: an offset, milliseconds since 1970, and S where a run began."""
        self._times = Log(self._folder, f"times.{self._stream}", TIMES_BYTES, TIMES_SEGMENTS)
        self._mark("S")

    def _mark(self, what: str) -> None:
        assert self._times is not None
        self._marked = now()
        wall_ms = int(time.clock_gettime(time.CLOCK_REALTIME) * 1000)
        self._times.write(f"{self._start + self._written:015d} {wall_ms:013d} {what}\n".encode())

    def _names(self) -> list[str]:
        return sorted(name for name in os.listdir(self._folder) if name.startswith(self._stream + "."))

    def _open(self, start: int) -> None:
        name = f"{self._stream}.{start:015d}"
        self._file = os.open(name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640, dir_fd=self._folder)
        self._start, self._written = start, os.fstat(self._file).st_size

    def write(self, data: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk costs output, never the instance
            if self._times is not None and now() >= self._marked + MARK_S:
                self._mark("W")
            while data:
                if self._written >= self._segment_bytes:
                    self._rotate()
                done = os.write(self._file, data[: self._segment_bytes - self._written])
                self._written += done
                data = data[done:]

    def _rotate(self) -> None:
        full = self._file
        self._open(self._start + self._written)  # raises where there is no room; the next to write tries again
        os.close(full)
        for name in self._names()[: -self._segments_max]:
            os.unlink(name, dir_fd=self._folder)


# --- what is done between fork and exec ----------------------------------------------------------------------------------------


def drop_capabilities() -> None:
    for capability in range(CAPABILITIES_MAX):
        if _libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) != 0 and ctypes.get_errno() == errno.EINVAL:
            break
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)


def clear_capabilities() -> None:
    header, nothing = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION_3, 0), (ctypes.c_uint32 * 6)()
    _libc.capset(header, nothing)


def enter(spec: dict[str, Any], parent: int) -> None:
    """In the child: everything that must be true before the instance's first instruction."""
    os.setsid()
    for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for procs in spec["cgroups"]:
        with open(procs, "wb", buffering=0) as file:
            file.write(b"0")
    for name, value in spec["limits"].items():
        which = getattr(resource, f"RLIMIT_{name.upper()}")
        hard = resource.getrlimit(which)[1]
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(which, (value, value))
    os.umask(0o027)
    drop_capabilities()
    if spec["uid"] is not None:
        os.setgroups([])
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    clear_capabilities()
    _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)  # after the change of user, which clears it
    if os.getppid() != parent:
        os._exit(127)
    # Through a descriptor the agent opened step by step without following links; entered as the instance's own user.
    os.fchdir(spec["workdir_fd"])


def run_child(spec: dict[str, Any], out: int, err: int, failed: int, parent: int) -> NoReturn:
    try:
        enter(spec, parent)
        null = os.open("/dev/null", os.O_RDONLY)
        for source, target in ((null, 0), (out, 1), (err, 2)):
            os.dup2(source, target)
        os.set_inheritable(failed, False)
        os.dup2(failed, 3, inheritable=False)
        os.closerange(4, 1 << 16)
        failed = 3
        os.execve(find(spec["argv"][0], spec["env"]), spec["argv"], spec["env"])
    except OSError as error:
        os.write(failed, f"{error.strerror}: {error.filename or spec['argv'][0]}".encode())
    except BaseException as error:
        os.write(failed, repr(error).encode())
    os._exit(127)


def find(program: str, env: dict[str, str]) -> str:
    """As execvp does, over the instance's own PATH."""
    if "/" in program:
        return program
    for folder in env.get("PATH", "").split(":"):
        if folder and os.access(f"{folder}/{program}", os.X_OK):
            return f"{folder}/{program}"
    raise FileNotFoundError(errno.ENOENT, "No such program on the instance's PATH", program)


# --- the shim -------------------------------------------------------------------------------------------------------------------


class Shim:
    def __init__(self, spec: dict[str, Any]) -> None:
        self.spec = spec
        self.folder = os.open(spec["run_dir"], os.O_DIRECTORY | os.O_CLOEXEC)
        # Open for both: the agent comes and goes, and a FIFO without a writer would be readable all the time.
        self.control = os.open("control", os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self.folder)
        self.main = 0
        self.status: int | None = None  # of the main process, once it ended
        self.cause = self.message = ""
        self.kill_at: float | None = now() + spec["timeout_s"] if spec.get("timeout_s") else None
        self.pipes: dict[int, Log | None] = {}
        self.wake_r, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def start(self) -> None:
        if self._is_fenced():  # a machine that is overloaded, or slept, comes to this late: it may run elsewhere by now
            self.cause, self.status = "fenced", signal.SIGKILL
            return
        spec = self.spec
        logs = os.open(spec["log_dir"], os.O_DIRECTORY | os.O_CLOEXEC) if spec["log_dir"] else None
        ends = []
        for stream in ("stdout", "stderr"):
            read, write = os.pipe2(os.O_CLOEXEC)
            os.set_blocking(read, False)
            self.pipes[read] = kept = Log(logs, stream, spec["segment_bytes"], spec["segments_max"]) if logs is not None else None
            if kept is not None:
                kept.keep_times()
            ends.append(write)
        failed_r, failed_w = os.pipe2(os.O_CLOEXEC)
        parent = os.getpid()
        self.main = os.fork()
        if self.main == 0:
            run_child(spec, ends[0], ends[1], failed_w, parent)
        for end in (*ends, failed_w, spec["workdir_fd"]):
            os.close(end)
        self.message = os.read(failed_r, 1000).decode(errors="replace")  # ends when exec closed the other side
        os.close(failed_r)
        if self.message:
            self.cause = "unstartable"
            return
        pids = f"{parent} {start_time(parent)} {self.main} {start_time(self.main)}"
        write_atomically(self.folder, "started", f"{pids} {spec['boot_id']} {now():.3f}\n")

    def run(self) -> None:
        poll = select.poll()
        for file in (self.control, self.wake_r, *self.pipes):
            poll.register(file, select.POLLIN)
        while not self._over():
            for file, _ in poll.poll(self._wait_ms()):
                if file == self.control:
                    self._obey(os.read(file, CHUNK))  # all there are: a FIFO holds no more
                elif file == self.wake_r:
                    with contextlib.suppress(BlockingIOError):
                        os.read(self.wake_r, 256)
                elif not self._copy(file):
                    poll.unregister(file)
                    os.close(file)
                    del self.pipes[file]
            self._keep_time()
        self._finish()

    def _wait_ms(self) -> int:
        waits = [LOOK_S]
        if self.kill_at is not None:
            waits.append(self.kill_at - now())
        if self.spec["fences"]:
            waits.append(FENCE_POLL_S)
        if self.status is not None:
            waits.append(0.02)  # the rest of the tree is being killed
        return max(0, int(min(waits) * 1000) + 1)

    def _obey(self, order: bytes) -> None:
        for line in order.decode(errors="replace").split("\n"):
            word, _, rest = line.partition(" ")
            if word == "stop":
                self.cause = self.cause or "stopped"
                grace_s = max(0.0, float(rest or 0))
                self.kill_at = min(float("inf") if self.kill_at is None else self.kill_at, now() + grace_s)
                signal_each(self._tree(), signal.SIGTERM)
            elif word == "kill":
                self.cause = rest or self.cause or "stopped"
                self.kill_at = 0.0

    def _is_fenced(self) -> bool:
        return bool(self.spec["fences"]) and now() >= min(fence_time(*each) for each in self.spec["fences"])

    def _keep_time(self) -> None:
        self._reap()
        if self.status is None and self._is_fenced():
            self.cause, self.kill_at = "fenced", 0.0
        if self.kill_at is None and os.fstat(self.folder).st_nlink == 0:
            # The agent's directory was removed: no agent can ever adopt this run or stop it, so nobody wants it.
            self.cause, self.kill_at = "orphaned", 0.0
        if self.kill_at is not None and now() >= self.kill_at:
            if self.status is None and not self.cause:
                self.cause = "timeout"
            self._kill_tree()
        elif self.status is not None:
            self._kill_tree()  # what it left behind goes with it

    def _kill_tree(self) -> None:
        """Stopped first, until no new one appears, so that a forking tree cannot run away from the kill."""
        seen: set[int] = set()
        for _ in range(100):
            found = set(self._tree()) - seen
            if not found:
                break
            signal_each(found, signal.SIGSTOP)
            seen |= found
        signal_each(seen, signal.SIGKILL)
        if self.spec["kill_file"] and seen:
            with contextlib.suppress(OSError), open(self.spec["kill_file"], "wb", buffering=0) as file:
                file.write(b"1")
        self._reap()

    def _tree(self) -> list[int]:
        found, waiting = [], [os.getpid()]
        while waiting:
            pid = waiting.pop()
            with contextlib.suppress(OSError):
                for task in os.listdir(f"/proc/{pid}/task"):
                    with contextlib.suppress(OSError), open(f"/proc/{pid}/task/{task}/children", "rb") as file:
                        waiting += (children := [int(child) for child in file.read().split()])
                        found += children
        return found

    def _reap(self) -> None:
        with contextlib.suppress(ChildProcessError):
            while (found := os.waitpid(-1, os.WNOHANG))[0]:
                if found[0] == self.main:
                    self.status = found[1]

    def _over(self) -> bool:
        if self.status is None:
            return False
        try:
            os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except ChildProcessError:
            return True
        return False

    def _copy(self, file: int) -> bool:
        """False once the other side is closed."""
        for _ in range(16):
            try:
                data = os.read(file, CHUNK)
            except BlockingIOError:
                return True
            if not data:
                return False
            log = self.pipes[file]
            if log is not None:
                log.write(data)
            elif len(self.message) < 1000:
                self.message += data.decode(errors="replace")
        return True

    def _finish(self) -> None:
        for file in list(self.pipes):
            self._copy(file)
        assert self.status is not None
        code = os.waitstatus_to_exitcode(self.status)
        cause = self.cause or ("exited" if code >= 0 else "signalled")
        code = code if code >= 0 else 128 - code
        message = self.message.replace("\n", " ")[:1000]
        leave_word(self.folder, f"{code} {cause} {now():.3f} {message}\n")
        for procs in self.spec["cgroups"]:
            group = os.path.dirname(procs)
            with contextlib.suppress(OSError):
                os.rmdir(group)
                if cause == "orphaned":
                    os.rmdir(os.path.dirname(group))


def main() -> None:
    spec = marshal.load(sys.stdin.buffer)
    os.close(0)
    os.open("/dev/null", os.O_RDONLY)
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _libc.prctl(PR_SET_NAME, b"fairlead-shim", 0, 0, 0)
    for file in (spec["workdir_fd"], spec["ready_fd"]):
        os.set_inheritable(file, False)
    shim = Shim(spec)
    shim.start()
    os.close(spec["ready_fd"])  # the agent waits for this: it is started, or it never will be
    shim.run()


if __name__ == "__main__":
    main()
