"""Chooses mode and number of workers from what the first samples cost.

The rule: stay inline while a hand-over costs more than the work; threads for our own gathers, and for the
user's code when they say it is thread-safe and it spends its time outside the interpreter; processes for
everything else. Never more workers than cores that are ours.
"""

from __future__ import annotations

from dataclasses import dataclass

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
from infeed.tasks import Piece, Reply, Task

HAND_OVER = 100e-6
MORE_ROWS = 60
QUICK = 0.05


@dataclass(frozen=True)
class Decision:
    """What was chosen and why; `first` is what the timed samples gave, so none is made twice."""

    mode: Mode
    count: int
    reason: str
    first: Reply | None = None


def decide(
    recipe: Recipe,
    chain: Chain,
    epoch: int,
    step: int,
    mode: Mode,
    count: int | None,
    thread_safe: bool,
) -> Decision:
    """Time the first samples here, then choose. What the user has fixed stays fixed."""
    many = cores.available() if count is None else count
    if recipe.scanned:
        chosen: Mode = mode if mode != "auto" else "processes"
        return Decision(chosen, many, f"{many} {chosen}: scanned pipelines are read ahead by workers")
    if recipe.gathers and not recipe.whole_batches:
        return _for_gathers(recipe, mode, count, many)
    if mode != "auto":
        return Decision(mode, many, f"{many} {mode}: the mode was asked for, the number is that of our cores")
    reply, rows = time_first(recipe, chain, epoch, step)
    if reply.status != "done":
        return Decision("inline", 0, "inline: the first samples raise, and the loop is to see that at once")
    return _for_samples(recipe, reply, rows, many, thread_safe, count)


def _for_gathers(recipe: Recipe, mode: Mode, count: int | None, many: int) -> Decision:
    layout = recipe.known_layout()
    assert layout is not None
    seconds = layout.nbytes(recipe.plan.rows_per_step) / 4e9
    if mode != "auto":
        return Decision(mode, many, f"{many} {mode}: the mode was asked for, the number is that of our cores")
    if count is None and (many < 2 or seconds < HAND_OVER / 20):
        return Decision("inline", 0, f"inline: gathering a step takes about {_time(seconds)}")
    return Decision("threads", many, f"{many} threads: gathers release the interpreter lock")


def _for_samples(
    recipe: Recipe, reply: Reply, rows: int, many: int, thread_safe: bool, count: int | None
) -> Decision:
    per_sample = reply.seconds / rows
    step = per_sample * recipe.plan.rows_per_step
    outside = 1 - reply.cpu / reply.seconds if reply.seconds else 0.0
    cost = f"a sample takes {_time(per_sample)}, a step {_time(step)}"
    own = isinstance(recipe.source, Source) and recipe.source.thread_safe and not recipe.stages
    if count is None and step < HAND_OVER:
        return Decision("inline", 0, f"inline: {cost}, less than handing it over", reply)
    if thread_safe and outside > 0.5:
        return Decision(
            "threads", many, f"{many} threads: {cost}, {outside:.0%} of it outside the interpreter", reply
        )
    if own and not recipe.batch_stages:
        return Decision("threads", many, f"{many} threads: {cost}, all of it in our own code", reply)
    if thread_safe:
        return Decision("threads", many, f"{many} threads: {cost}, and the code is said to be thread-safe", reply)
    return Decision("processes", many, f"{many} processes: {cost}", reply)


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
        raise OutOfMemory(
            f"one step of {recipe.plan.rows_per_step} samples needs {megabytes(needed)}, and there are "
            f"{megabytes(room)}; use a smaller batch, or fewer iterations per step"
        )


def _time(seconds: float) -> str:
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("us", 1e-6)):
        if seconds >= scale:
            return f"{seconds / scale:.3g} {unit}"
    return f"{seconds * 1e9:.0f} ns"
