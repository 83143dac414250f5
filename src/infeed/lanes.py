"""The samples that remain of a scanned pipeline, in the order of the stream, whoever found them when.

A filtered pipeline is one lane, whose places are positions of the epoch. An iterable is one lane per shard,
whose places count the shard's samples; the lanes take turns, `RUN` remaining samples each. A lane is a row
of finds: what one task has looked through. Where the stream stands is a cursor: how far each lane has been
used, and whose turn it is.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.slots import Slot

RUN = 16
ALL = "all"


@dataclass(eq=False)
class Find:
    """What one task looked through, from place `start` to `stop`: what remains is staged in a slot."""

    start: int
    stop: int
    slot: Slot
    done: bool = False
    errors: list[tuple[int, BaseException]] = field(default_factory=list)
    places: Sequence[int] = ()
    value: Any = None
    where: Any = None
    state: Any = None
    used: int = 0
    readers: int = 0
    abandoned: bool = False

    @property
    def left(self) -> int:
        """Samples not yet given to a batch."""
        return len(self.places) - self.used

    @property
    def over(self) -> bool:
        """Whether its slot can be freed: used up, and no assembly reads from it."""
        return self.done and not self.readers and (self.abandoned or not self.left)


@dataclass(eq=False)
class Lane:
    """One shard, or all positions of a filtered pipeline."""

    shard: str
    next: int = 0
    used: int = 0
    ended: bool = False
    in_turn: int = 0
    state: Any = None
    finds: deque[Find] = field(default_factory=deque)

    @property
    def exhausted(self) -> bool:
        """Whether nothing more will come from it."""
        return self.ended and not self.finds

    def saved(self) -> dict[str, Any]:
        """How far it has been used. A source's own state is that of a find's start; the rest is read over."""
        find = self.finds[0] if self.finds and self.finds[0].done else None
        state = None if find is None else find.state
        skip = 0 if find is None or state is None else self.used - find.start
        return {
            "used": self.used,
            "ended": self.exhausted,
            "in_turn": self.in_turn,
            "state": state,
            "skip": skip,
        }

    @staticmethod
    def restored(shard: str, saved: dict[str, Any]) -> Lane:
        """A lane that goes on where another was."""
        start = saved["used"] - saved["skip"]
        return Lane(shard, start, saved["used"], saved["ended"], saved["in_turn"], saved["state"])


Part = tuple[Find, int, int]
Outcome = Literal["full", "waiting", "ended"]


class Lanes:
    """All lanes of an epoch; `take` collects the next samples in order."""

    def __init__(self, shards: Sequence[str], cursor: dict[str, Any] | None = None):
        self.lanes = [Lane(shard) for shard in shards]
        self.turn = 0
        self.parts: list[Part] = []
        self.pending = 0
        self.spent: list[Find] = []
        if cursor is not None:
            self.turn = cursor["turn"]
            self.lanes = list(map(Lane.restored, shards, cursor["lanes"]))

    def cursor(self) -> dict[str, Any]:
        """Where the stream stands behind the samples taken so far."""
        return {"turn": self.turn, "lanes": [lane.saved() for lane in self.lanes], "ended": False}

    def take(self, size: int) -> Outcome | BaseException:
        """Collect up to `size` samples into `parts`; an exception that stands in their way is returned."""
        while self.pending < size:
            lane = self._whose_turn()
            if lane is None:
                return "waiting" if any(not lane.exhausted for lane in self.lanes) else "ended"
            find = lane.finds[0]
            if find.errors and (not find.left or find.errors[0][0] <= find.places[find.used]):
                return find.errors.pop(0)[1]
            while find.left and find.places[find.used] < lane.used:
                find.used += 1  # a resumed run had these already
            if not find.left:
                lane.finds.popleft()
                lane.used = max(lane.used, find.stop)
                self.spent.append(find)
                continue
            self._take_run(lane, find, size - self.pending)
        return "full"

    def _take_run(self, lane: Lane, find: Find, most: int) -> None:
        run = min(find.left, most)
        if find.errors:  # what raised has its place among the samples
            run = min(run, bisect_left(find.places, find.errors[0][0], find.used) - find.used)
        if len(self.lanes) > 1:
            run = min(run, RUN - lane.in_turn)
            lane.in_turn += run
        self.parts.append((find, find.used, find.used + run))
        find.used += run
        find.readers += 1
        self.pending += run
        lane.used = find.places[find.used - 1] + 1
        if lane.in_turn >= RUN:
            lane.in_turn = 0
            self.turn += 1

    def _whose_turn(self) -> Lane | None:
        """The lane to take from; None when it must be waited for, or when all have ended."""
        for _ in self.lanes:
            lane = self.lanes[self.turn % len(self.lanes)]
            if not lane.exhausted:
                return lane if lane.finds and lane.finds[0].done else None
            lane.in_turn = 0
            self.turn += 1
        return None

    def collected(self) -> tuple[list[Part], int]:
        """The parts taken since the last call."""
        parts, count = self.parts, self.pending
        self.parts, self.pending = [], 0
        return parts, count

    def finds(self) -> list[Find]:
        """All finds that are still held."""
        held = [find for lane in self.lanes for find in lane.finds] + self.spent
        return held + [find for find, _, _ in self.parts]
