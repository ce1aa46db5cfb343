"""What a simulated program may not reach, name by name, and what goes on beside it."""

from __future__ import annotations

import _thread
import logging
import os
import random
import secrets
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

import pytest

from fairlead.sim import loop as sim
from fairlead.sim.loop import SimForbidden, SimLoop
from fairlead.sim.walls import walls

REACHES: dict[str, Callable[[], Any]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.monotonic_ns": lambda: time.monotonic_ns(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.sleep": lambda: time.sleep(0),
    "time.clock_gettime": lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
    "time.clock_gettime_ns": lambda: time.clock_gettime_ns(time.CLOCK_REALTIME),
    "time.process_time": lambda: time.process_time(),
    "time.thread_time": lambda: time.thread_time(),
    "time.gmtime": lambda: time.gmtime(),
    "time.localtime": lambda: time.localtime(None),
    "time.ctime": lambda: time.ctime(),
    "time.asctime": lambda: time.asctime(),
    "time.strftime": lambda: time.strftime("%s"),
    "os.times": lambda: os.times(),
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1]),
    "random.shuffle": lambda: random.shuffle([1]),
    "random.Random": lambda: random.Random(),
    "random.SystemRandom": lambda: random.SystemRandom(),
    "secrets.token_bytes": lambda: secrets.token_bytes(4),
    "secrets.token_hex": lambda: secrets.token_hex(4),
    "uuid.uuid1": lambda: uuid.uuid1(),
    "uuid.uuid4": lambda: uuid.uuid4(),
    "os.urandom": lambda: os.urandom(8),
    "os.getrandom": lambda: os.getrandom(8),
    "socket.socketpair": lambda: socket.socketpair(),
    "socket.bind": lambda: socket.socket().bind(("127.0.0.1", 0)),
    "Thread.start": lambda: threading.Thread(target=print).start(),
    "socket.connect_ex": lambda: socket.socket().connect_ex(("127.0.0.1", 1)),
    "socket.sendto": lambda: socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", 9)),
    "socket.sendmsg": lambda: socket.socket(type=socket.SOCK_DGRAM).sendmsg([b"x"], [], 0, ("127.0.0.1", 9)),
    "socket.getaddrinfo": lambda: socket.getaddrinfo("localhost", 80),
    "socket.gethostbyname": lambda: socket.gethostbyname("localhost"),
    "os.fork": lambda: os.fork() or os._exit(0),
    "os.system": lambda: os.system("true"),
    "os.posix_spawn": lambda: os.posix_spawn("/bin/true", ["true"], {}),
    "_thread.start_new_thread": lambda: _thread.start_new_thread(print, ()),
    "Popen": lambda: subprocess.Popen(["true"]),
}


@pytest.mark.parametrize("name", REACHES)
def test_what_is_real_is_out_of_reach_while_a_world_runs(name: str) -> None:
    async def main(loop: SimLoop) -> str:
        with pytest.raises(SimForbidden) as caught:
            REACHES[name]()
        return str(caught.value)

    with walls():
        said = sim.run(main, 1).value
    assert name.rpartition(".")[2] in said


def test_a_generator_that_was_made_before_and_draws_from_the_system_is_out_of_reach_too() -> None:
    generator = random.SystemRandom()
    with walls(), pytest.raises(SimForbidden):
        generator.random()


def test_everything_is_back_afterwards_and_a_seed_makes_a_generator_within() -> None:
    with walls():
        within = random.Random(7).random()
    assert within == random.Random(7).random()
    assert time.time() > 1e9
    assert len(os.urandom(8)) == 8
    assert random.random() != random.random()
    assert random.Random().random() != random.Random().random()
    assert logging.time is time  # type: ignore[attr-defined]


def test_a_line_that_is_logged_within_has_no_time_of_the_real_world(caplog: pytest.LogCaptureFixture) -> None:
    with walls():
        logging.getLogger("fairlead.test").warning("said")
    assert [record.created for record in caplog.records] == [0.0]


def test_a_date_of_a_time_that_is_given_is_no_clock() -> None:
    with walls():
        assert time.gmtime(0).tm_year == 1970
        assert time.strftime("%Y", time.gmtime(0)) == "1970"


def test_other_threads_of_the_process_are_none_of_the_worlds() -> None:
    begin, seen = threading.Event(), list[float]()

    def beside() -> None:
        begin.wait(10)
        seen.append(time.time())

    thread = threading.Thread(target=beside)
    thread.start()
    with walls():
        begin.set()
        thread.join()
    assert seen
    assert seen[0] > 1e9
