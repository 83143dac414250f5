"""A task: fill these rows of this slot with these samples. Doing it twice does no harm."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from infeed.layout import Layout
from infeed.wire import Encoded


@dataclass(slots=True)
class Task:
    """What a worker is asked for.

    `kind` is `"fill"` (samples by index into rows of a slot), `"sift"` (maps and filters over a run of
    positions; the survivors are staged), `"read"` (the next samples of a shard of an iterable, staged) or
    `"assemble"` (staged samples into a batch).
    """

    id: int
    job: int
    kind: Literal["fill", "sift", "read", "assemble"]
    epoch: int
    slot: int
    low: int
    high: int
    rows: int = 0
    first_step: int = 0
    layout: int = -1
    region: tuple[int, int] = (0, 0)
    careful: bool = False
    replaced: dict[int, int] = field(default_factory=dict)
    staged: tuple[Any, ...] = ()
    shard: str = ""
    worker: int = -1
    deaths: int = 0
    unexplained: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # On the hot path: the way dataclasses with slots are pickled by default costs ten times this.
        return Task, (
            self.id,
            self.job,
            self.kind,
            self.epoch,
            self.slot,
            self.low,
            self.high,
            self.rows,
            self.first_step,
            self.layout,
            self.region,
            self.careful,
            self.replaced,
            self.staged,
            self.shard,
        )


@dataclass(slots=True)
class Reply:
    """What came of a task.

    `value` holds what has no place in the slot: columns of objects, whole batches that took the general way,
    staged samples, bad rows, or the exception. The first `written` bytes of the task's region hold arrays of
    `value` already.
    """

    task: int
    status: Literal["done", "failed", "bad"]
    value: Any = None
    in_place: bool = False
    layout: Layout | None = None
    seconds: float = 0.0
    where: Encoded | None = None
    spilled: int = 0
    worker: int = -1
    cpu: float = 0.0
    needed: int = 0
    written: int = 0

    def __reduce__(self) -> tuple[Any, ...]:
        # As for tasks; the value travels in the slot.
        return Reply, (
            self.task,
            self.status,
            None,
            self.in_place,
            self.layout,
            self.seconds,
            self.where,
            self.spilled,
            self.worker,
            self.cpu,
            self.needed,
        )


@dataclass(slots=True)
class Piece:
    """Rows `low` to `high` of a slot as a finished batch that took the general way."""

    low: int
    high: int
    batch: Any


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row whose sample raised."""

    row: int
    index: int
    position: int
    error: BaseException
