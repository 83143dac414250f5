"""The helper: a clean process without threads that makes the workers and tells when one has ended.

    loop ==control==> helper --fork--> worker, worker, ...
      |                                  ^
      +-------- one socket each ---------+

It never runs the user's `__main__`. It loads the pipeline once, so that workers begin with it in memory and a
replacement is there within milliseconds. When the loop is gone (its end of the control socket is closed), the
helper ends the workers; when the helper is gone, the kernel does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import select
import signal
import socket
import subprocess
import sys
import time
from typing import Any

from infeed.runner import describe
from infeed.workers.channel import Channel, Gone
from infeed.workers.child import child_main, loading_failed
from infeed.workers.shipping import error_to_bytes, unpack

GRACE = 0.3
LONGEST = 1 << 14


class Helper:
    """The helper from the inside."""

    def __init__(self, control: Channel, *, spawn: bool, recipes: dict[int, Any], setup: Any):
        self.control = control
        self.spawn = spawn
        self.recipes = recipes
        self.setup = setup
        self.children: dict[int, tuple[int, int]] = {}  # pidfd -> (pid, worker)
        self.poll = select.poll()
        self.poll.register(control.fileno(), select.POLLIN)

    def run(self) -> None:
        """Serve until the loop is gone, then see that no worker outlives it."""
        with contextlib.suppress(Gone):
            while True:
                for fd, _ in self.poll.poll():
                    if fd in self.children:
                        self.bury(fd)
                    else:
                        received = self.control.receive()
                        assert received is not None
                        message, fds = received
                        getattr(self, "on_" + message[0])(*message[1:], fds)
        self.end_workers()

    def on_job(self, number: int, sizes: Any, fds: list[int]) -> None:
        """Load a pipeline for the workers to come."""
        try:
            self.recipes[number] = unpack(sizes, fds)
        except Exception as error:
            self.tell_broken(number, error)
        self.tell_threads()

    def on_setup(self, sizes: Any, fds: list[int]) -> None:
        """Load the setup function."""
        try:
            self.setup = unpack(sizes, fds)
        except Exception as error:
            self.tell_broken(-1, error)
        self.tell_threads()

    def tell_broken(self, number: int, error: Exception) -> None:
        """What came cannot be loaded. A message is one packet, so an exception too long for it is told in short."""
        trace = describe(error)[-LONGEST:]
        data = error_to_bytes(loading_failed(error), trace)
        if len(data) > 4 * LONGEST:
            data = error_to_bytes(RuntimeError(f"{type(error).__name__}: {str(error)[:LONGEST]}"), trace)
        self.control.send(("broken", number, data))

    def tell_threads(self) -> None:
        """Threads that the user's imports have started would be lost, with their locks, in every fork."""
        with contextlib.suppress(OSError):
            count = len(os.listdir("/proc/self/task"))
            if count > 1:
                self.control.send(("threads", count))

    def on_forget(self, number: int, _: list[int]) -> None:
        """A loader is closed."""
        self.recipes.pop(number, None)

    def on_stop(self, _: list[int]) -> None:
        """The loop is done; a word is surer than a closed socket, of which a fork may hold a copy."""
        raise Gone

    def on_worker(self, worker: int, fds: list[int]) -> None:
        """Make a worker; its socket and the file for its stacks came along."""
        if self.spawn:
            pid = self._exec(worker, fds)
        else:
            gc.collect()
            gc.freeze()
            pid = self._fork(worker, fds)
        pidfd = os.pidfd_open(pid)
        self.children[pidfd] = (pid, worker)
        self.poll.register(pidfd, select.POLLIN)
        self.control.send(("made", worker, pid))
        for fd in fds:
            os.close(fd)

    def _fork(self, worker: int, fds: list[int]) -> int:
        me = os.getpid()
        pid = os.fork()
        if pid == 0:
            self.control.close()
            for pidfd in self.children:
                os.close(pidfd)
            child_main(Channel(socket.socket(fileno=fds[0])), worker, fds[1], self.recipes, self.setup, me)
        return pid

    @staticmethod
    def _exec(worker: int, fds: list[int]) -> int:
        code = (
            f"import sys; sys.path[:] = {sys.path!r}; from infeed.workers.child import spawned_main; "
            f"spawned_main({fds[0]}, {fds[1]}, {worker}, {os.getpid()})"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", code], pass_fds=fds, stdin=subprocess.DEVNULL, process_group=0
        )
        process.returncode = 0  # we bury it ourselves
        return process.pid

    def bury(self, pidfd: int) -> None:
        """A worker has ended: say how."""
        pid, worker = self.children.pop(pidfd)
        self.poll.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self.control.send(("ended", worker, pid, os.waitstatus_to_exitcode(status)))

    def end_workers(self) -> None:
        """Idle workers end by themselves, since their sockets are closed; others are killed."""
        deadline = time.monotonic() + GRACE
        while self.children and (left := deadline - time.monotonic()) > 0:
            for fd, _ in self.poll.poll(left * 1000):
                if fd in self.children:
                    pid, _ = self.children.pop(fd)
                    self.poll.unregister(fd)
                    os.waitpid(pid, 0)
                else:
                    self.poll.unregister(fd)
        for pid, _ in self.children.values():
            os.kill(pid, signal.SIGKILL)


def helper_main(control: Channel, *, spawn: bool, recipes: dict[int, Any], setup: Any) -> None:
    """Run the helper to its end; never returns."""
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        with contextlib.suppress(ValueError):
            signal.set_wakeup_fd(-1)
        Helper(control, spawn=spawn, recipes=recipes, setup=setup).run()
        status = 0
    except BaseException as error:
        print(f"infeed's helper process failed:\n{describe(error)}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def main(fd: int, directory: str, *, spawn: bool) -> None:
    """The entry of a helper that is a fresh interpreter."""
    with contextlib.suppress(OSError):
        os.chdir(directory)
    control = Channel(socket.socket(fileno=fd))
    helper_main(control, spawn=spawn, recipes={}, setup=None)
