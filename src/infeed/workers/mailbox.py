"""Waits on the sockets of all workers, by whoever needs a reply, or by an attendant while nobody does.

Whoever waits in `next()` reads the sockets himself, because waking another thread costs more than a small
batch. While nobody waits, the attendant thread reads, so that filling goes on during a training step. It
sleeps on a bell: a second poller that looks at the first one, rings once, and is armed again by the last
who read.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable

_RING_ONCE = select.EPOLLIN | select.EPOLLONESHOT if hasattr(select, "epoll") else 0


class Mailbox:
    """`take(fds)` is called with the lock held, for the descriptors that have something to read."""

    def __init__(self, lock: threading.RLock, take: Callable[[list[int]], None]):
        self._lock = lock
        self._take = take
        self._poll = select.epoll()
        self._bell = select.epoll()
        self._stop_read, self._stop_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._bell.register(self._stop_read, select.EPOLLIN)
        self._bell.register(self._poll.fileno(), _RING_ONCE)
        self._condition = threading.Condition(lock)
        self._someone_reads = False
        self._waiting = 0
        self._closed = False
        self._attendant = threading.Thread(target=self._attend, name="infeed-attendant", daemon=True)
        self._attendant.start()

    def register(self, fd: int) -> None:
        """Listen to a descriptor."""
        self._poll.register(fd, select.EPOLLIN)

    def unregister(self, fd: int) -> None:
        """Listen to it no more; no matter if that was so already."""
        with contextlib.suppress(FileNotFoundError, ValueError, OSError):
            self._poll.unregister(fd)

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        """Read until `ready()`; the first who waits reads, others are woken. False if it took too long."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not ready():
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return False
            if self._someone_reads:
                self._waiting += 1
                try:
                    self._condition.wait(left)
                finally:
                    self._waiting -= 1
            else:
                self._read(left)
        return True

    def _read(self, timeout: float | None) -> None:
        self._someone_reads = True
        try:
            self._lock.release()
            try:
                events = self._poll.poll(timeout)
            finally:
                self._lock.acquire()
            self._take([fd for fd, _ in events])
        finally:
            self._someone_reads = False
            self._pass_on()

    def _pass_on(self) -> None:
        """Wake those who wait for a reply that may have come, and let the attendant listen again."""
        if self._waiting:
            self._condition.notify_all()
        if not self._closed:
            self._bell.modify(self._poll.fileno(), _RING_ONCE)

    def _attend(self) -> None:
        while True:
            self._bell.poll()
            with self._lock:
                if self._closed:
                    return
                if not self._someone_reads:
                    self._take([fd for fd, _ in self._poll.poll(0)])
                    self._pass_on()

    def close(self) -> None:
        """End the attendant. Called without the lock."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._condition.notify_all()
        os.write(self._stop_write, b"x")
        if self._attendant is not threading.current_thread():
            self._attendant.join(timeout=2)
        self._poll.close()
        self._bell.close()
        os.close(self._stop_read)
        os.close(self._stop_write)
