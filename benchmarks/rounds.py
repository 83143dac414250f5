"""Every contestant in a process of its own, and their turns interleaved.

    this process                          contestants, forked from it
    makes the dataset once        ──────► all see the same pages of it
    round 1:  A  B  C  D                  one at a time does its turn; the others sleep
    round 2:     B  C  D  A               each round begins with another one
    after each turn: wait until what the loader still prepares for later is done, so that nobody pays for it

A contestant that raises or does not answer is reported as failed; the others go on.
"""

from __future__ import annotations

import gc
import multiprocessing
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

import psutil

from benchmarks.turns import Entrant

PATIENCE = 180.0
SETTLED = 0.03


@dataclass(frozen=True)
class Contestant:
    """Who takes part; `enter` is called in its own process."""

    name: str
    family: str  # infeed, torch, BatchUp, loop or limit
    enter: Callable[[], Entrant]


@dataclass
class Standing:
    """What a contestant has shown so far."""

    name: str
    family: str
    values: list[float] = field(default_factory=list)
    note: str = ""
    error: str = ""


class Seat:
    """A contestant's process, as seen from here."""

    def __init__(self, contestant: Contestant, others: Sequence[Seat]):
        self.standing = Standing(contestant.name, contestant.family)
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        foreign = [self.pipe, *(seat.pipe for seat in others)]
        self.process = context.Process(target=_serve, args=(contestant, theirs, foreign))
        self.process.start()
        theirs.close()
        self.alive = True

    def warm_up(self) -> None:
        """Wait until it has entered and done its first epoch."""
        self._answer("the start")

    def turn(self) -> None:
        """Let it have its turn."""
        self.pipe.send("turn")
        value = self._answer("a turn")
        if value is not None:
            self.standing.values.append(value)

    def _answer(self, what: str) -> float | None:
        deadline = time.monotonic() + PATIENCE
        try:
            if self.pipe.poll(max(0.0, deadline - time.monotonic())):
                kind, value, note = self.pipe.recv()
                if kind == "done":
                    self.standing.note = note
                    return float(value)
                self._fail(str(value))
            else:
                self._fail(f"no answer to {what} within {PATIENCE:.0f} s")
        except (EOFError, OSError):
            self._fail(f"the process ended during {what}")
        return None

    def _fail(self, why: str) -> None:
        self.standing.error = why
        self.end(patience=2.0)

    def end(self, patience: float = 20.0) -> None:
        """End it and all processes it has started."""
        if not self.alive:
            return
        self.alive = False
        family = tree(self.process.pid)
        self.pipe.close()
        self.process.join(patience)
        for process in family:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                pass
        self.process.join()


def _serve(contestant: Contestant, pipe: Connection, foreign: Sequence[Connection]) -> None:
    """The life of a contestant's process: enter, warm up, then a turn whenever asked."""
    for other in foreign:
        other.close()  # else nobody would notice when this side of them is gone
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    entrant: Entrant | None = None
    try:
        entrant = contestant.enter()
        entrant.warm_up()
        pipe.send(("done", 0.0, entrant.note))
        while True:
            pipe.recv()
            pipe.send(("done", entrant.turn(), entrant.note))
    except (EOFError, BrokenPipeError):
        pass  # nobody asks any more
    except Exception as error:
        pipe.send(("failed", f"{type(error).__name__}: {error}\n{traceback.format_exc()}", ""))
    finally:
        if entrant is not None:
            entrant.close()


def tree(pid: int | None) -> list[psutil.Process]:
    """A process and all that descend from it."""
    try:
        root = psutil.Process(pid)
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def settle(pid: int | None, at_most: float) -> None:
    """Wait until a process and its descendants use no more processor time."""
    deadline, before = time.monotonic() + at_most, -1.0
    while time.monotonic() < deadline:
        spent = 0.0
        for process in tree(pid):
            try:
                times = process.cpu_times()
                spent += times.user + times.system
            except psutil.NoSuchProcess:
                pass
        if spent == before:
            return
        before = spent
        time.sleep(SETTLED)


def compete(
    contestants: Sequence[Contestant], rounds: int, tell: Callable[[str], Any], quiet: float = 5.0
) -> list[Standing]:
    """Let everyone in, do the rounds, and return the standings in the order of the contestants.

    `quiet` is how many seconds at most to wait after each turn for the contestant to become quiet.
    """
    gc.collect()
    gc.freeze()
    seats: list[Seat] = []
    try:
        for contestant in contestants:
            tell(f"start: {contestant.name}")
            seats.append(Seat(contestant, seats))
            seats[-1].warm_up()
            settle(seats[-1].process.pid, quiet)
        for number in range(rounds):
            for seat in rotated(seats, number):
                if seat.alive:
                    tell(f"round {number + 1} of {rounds}: {seat.standing.name}")
                    seat.turn()
                    settle(seat.process.pid, quiet)
    finally:
        for seat in seats:
            seat.pipe.close()  # all learn at once that it is over
        for seat in seats:
            seat.end()
        gc.unfreeze()
    return [seat.standing for seat in seats]


def rotated(items: Sequence[Any], by: int) -> list[Any]:
    """The items, beginning with another one each time.

    >>> rotated("abcd", 1)
    ['b', 'c', 'd', 'a']
    """
    start = by % max(1, len(items))
    return [*items[start:], *items[:start]]
