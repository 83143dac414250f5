"""One worker process from the outside: its socket, its tasks in hand, what it knows, how it ended."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections import deque
from typing import Any

from infeed.tasks import Task
from infeed.workers.channel import Channel, Gone


class Worker:
    """One worker process from the outside."""

    __slots__ = ("channel", "hand", "known", "layouts", "number", "pid", "slots", "stacks")

    def __init__(self, number: int, channel: Channel, stacks: int):
        self.number = number
        self.channel = channel
        self.stacks = stacks
        self.pid = 0
        self.hand: deque[Task] = deque()
        self.known: set[int] = set()
        self.layouts: set[tuple[int, int]] = set()
        self.slots: set[tuple[int, int]] = set()

    def send(self, message: Any, fds: tuple[int, ...] = ()) -> None:
        """Send a message. If it is gone, the helper will tell, and its tasks are still in its hand."""
        with contextlib.suppress(Gone):
            self.channel.send(message, fds)

    def ask_for_stack(self) -> None:
        """Have it write its Python stacks into the file it was given for that."""
        if self.pid:
            os.ftruncate(self.stacks, 0)
            os.lseek(self.stacks, 0, os.SEEK_SET)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGUSR1)

    def stack(self, deadline: float) -> str:
        """What it has written by then."""
        if not self.pid:
            return f"worker process {self.number} is being started"
        text = ""
        while not text and time.monotonic() < deadline:
            select.select([], [], [], 0.02)
            text = os.pread(self.stacks, 1 << 16, 0).decode(errors="replace")
        return f"worker process {self.number} (pid {self.pid}):\n{text or '(does not answer)'}"

    def until_gone(self) -> None:
        """Wait until nobody can write into slots from its side any more."""
        poll = select.poll()
        poll.register(self.channel.fileno(), select.POLLHUP)
        if not poll.poll(2000) and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            poll.poll(2000)

    def close(self) -> None:
        """Let go of our end."""
        self.channel.close()
        os.close(self.stacks)


def how_it_ended(status: int) -> str:
    """An exit status in words.

    >>> how_it_ended(3)
    'with exit code 3'
    """
    if status >= 0:
        return f"with exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    hint = " (often the kernel, when memory runs out)" if name == "SIGKILL" else ""
    return f"by {name}{hint}"
