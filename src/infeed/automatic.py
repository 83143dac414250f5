"""Chooses mode and number of workers from what the first samples cost.

The rule: stay inline while a hand-over costs more than the work; threads for our own gathers, and for the
user's code when they say it is thread-safe and it spends its time outside the interpreter; processes for
everything else. Never more workers than cores that are ours.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from infeed import cores
from infeed.crews import Mode
from infeed.errors import OutOfMemory
from infeed.filling import join_rows
from infeed.layout import aligned
from infeed.order import Chain
from infeed.recipe import INDEX_BYTES, Recipe, index_view, slot_bytes
from infeed.runner import Runner
from infeed.slots.segments import free_memory, megabytes
from infeed.sources import Source
from infeed.stream import LEARN_ROWS
from infeed.streaming import Counters
from infeed.tasks import Piece, Reply, Task

HAND_OVER = 100e-6
COPYING = 2e9
MORE_ROWS = 60
QUICK = 0.05
TENTATIVE_TASKS = 12
TENTATIVE_SECONDS = 0.1


@dataclass(frozen=True)
class Decision:
    """What was chosen and why; `first` is what the timed samples gave, so none is made twice.

    A tentative one is for the first few steps, until their time is known for certain.
    """

    mode: Mode
    count: int
    reason: str
    first: Reply | None = None
    tentative: bool = False


@dataclass(frozen=True)
class Wishes:
    """What the user has fixed: it stays fixed."""

    mode: Mode
    count: int | None
    thread_safe: bool

    @property
    def many(self) -> int:
        """How many workers to have, if any."""
        return cores.available() if self.count is None else self.count


@dataclass(frozen=True)
class Cost:
    """What making a step was seen to cost."""

    step: float
    row: float
    outside: float
    bytes_per_second: float

    def __str__(self) -> str:
        return f"a sample takes {_time(self.row)}, a step {_time(self.step)}"


def decide(recipe: Recipe, chain: Chain, epoch: int, step: int, wishes: Wishes) -> Decision:
    """Time the first samples here, then choose."""
    many, mode = wishes.many, wishes.mode
    if recipe.scanned:
        chosen: Mode = mode if mode != "auto" else "processes"
        return Decision(chosen, many, f"{many} {chosen}: filters and iterables are read ahead by workers")
    if mode != "auto":
        return Decision(mode, many, f"{many} {mode}: the mode was asked for, the number is that of our cores")
    if recipe.gathers and not recipe.whole_batches:
        return _for_gathers(recipe, wishes)
    reply, rows = time_first(recipe, chain, epoch, step)
    if reply.status != "done":
        return Decision("inline", 0, "inline: the first samples raise, and the loop is to see that at once")
    cost = _cost(recipe, reply.seconds, reply.cpu, rows, 0.0)
    if recipe.whole_batches and cost.step < QUICK and wishes.count is None:
        return Decision("inline", 0, f"inline for a few steps: {cost}, when cold", reply, tentative=True)
    decision = _for_cost(recipe, cost, wishes)
    return replace(decision, first=reply)


def settle(recipe: Recipe, counters: Counters, nbytes: int, wishes: Wishes) -> Decision | None:
    """The choice for good, once a few steps have been made inline; None while there are too few.

    `nbytes` is the size of one step, as far as it is known.
    """
    if counters.tasks < TENTATIVE_TASKS and counters.seconds < TENTATIVE_SECONDS:
        return None
    rows = recipe.plan.rows_per_step
    seconds, share = counters.per_row * rows, counters.cpu / max(counters.seconds, 1e-9)
    return _for_cost(recipe, _cost(recipe, seconds, seconds * share, rows, nbytes), wishes)


def _cost(recipe: Recipe, seconds: float, cpu: float, rows: int, nbytes: float) -> Cost:
    row = seconds / rows
    step = row * recipe.plan.rows_per_step
    outside = 1 - cpu / seconds if seconds else 0.0
    return Cost(step, row, outside, nbytes / step if step else 0.0)


def _for_gathers(recipe: Recipe, wishes: Wishes) -> Decision:
    layout = recipe.known_layout()
    assert layout is not None
    seconds = layout.nbytes(recipe.plan.rows_per_step) / 4e9
    if wishes.count is None and (wishes.many < 2 or seconds < HAND_OVER / 20):
        return Decision("inline", 0, f"inline: gathering a step takes about {_time(seconds)}")
    return Decision("threads", wishes.many, f"{wishes.many} threads: gathers release the interpreter lock")


def _for_cost(recipe: Recipe, cost: Cost, wishes: Wishes) -> Decision:
    many, free = wishes.many, wishes.count is None
    own = isinstance(recipe.source, Source) and recipe.source.thread_safe and not recipe.stages
    if free and cost.step < HAND_OVER:
        return Decision("inline", 0, f"inline: {cost}, less than handing it over")
    if free and cost.bytes_per_second > COPYING:
        return Decision("inline", 0, f"inline: {cost}, and most of it is copying, which workers would do again")
    if wishes.thread_safe and cost.outside > 0.5:
        why = f"{cost.outside:.0%} of it outside the interpreter"
        return Decision("threads", many, f"{many} threads: {cost}, {why}")
    if own and not recipe.whole_batches:
        return Decision("threads", many, f"{many} threads: {cost}, all of it in our own code")
    if wishes.thread_safe:
        return Decision("threads", many, f"{many} threads: {cost}, and the code is said to be thread-safe")
    return Decision("processes", many, f"{many} processes: {cost}")


def time_first(recipe: Recipe, chain: Chain, epoch: int, step: int) -> tuple[Reply, int]:
    """Do the first rows of a step here and now; returns the reply and how many rows its time is for.

    The very first samples are cold, so while they are quick a few more are made and only these are timed. What they
    give is kept: the stream begins with it.
    """
    total = recipe.plan.rows(step, recipe.size, recipe.last)
    high = recipe.units(0, total)[0][1] if recipe.whole_batches else min(LEARN_ROWS, total)
    memory = np.empty(aligned(total * INDEX_BYTES), np.uint8)
    runner = Runner(recipe, "inline")

    def run(low: int, high: int) -> Reply:
        index_view(memory, total)[low:high] = chain.at(recipe.positions(step, low, high), epoch)
        return runner.run(Task(-1, -1, "fill", epoch, -1, low, high, rows=total, first_step=step), memory)

    first = run(0, high)
    more = min(total, high + MORE_ROWS)
    if first.status != "done" or recipe.whole_batches or more == high or first.seconds > QUICK:
        return first, high
    second = run(high, more)
    if second.status != "done" or second.layout != first.layout:
        return first, high
    batch = join_rows([first.value[0].batch, second.value[0].batch])
    second.value = [Piece(0, more, batch)]
    return second, more - high


def check_fits(recipe: Recipe, limit: int | None) -> None:
    """`OutOfMemory` at construction, when not even one slot would fit."""
    layout = recipe.known_layout()
    if layout is None:
        return
    needed = slot_bytes(recipe.plan.rows_per_step, layout, 0)
    room = free_memory() if limit is None else limit
    if needed > room:
        found = f"{megabytes(room)} are free" if limit is None else f"memory_limit allows {megabytes(room)}"
        raise OutOfMemory(
            f"one step of {recipe.plan.rows_per_step} samples needs {megabytes(needed)}, and {found}; use a "
            "smaller batch, or fewer iterations per step"
        )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
