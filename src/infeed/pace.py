"""How much to do at once: steps per slot, tasks per step, steps ahead. A pure function of what is known by now.

A hand-over between threads or processes costs 20 to 100 microseconds, so a slot holds several steps when these are
small, and a task should be about a millisecond or two of work; a large step is cut, so that several workers fill it
together. None of these numbers changes a batch.
"""

from __future__ import annotations

from dataclasses import dataclass

from infeed.layout import Layout
from infeed.recipe import Recipe, slot_bytes

TASK_SECONDS = 0.002
GROUP_SECONDS = 0.002
GROUP_STEPS = 32
TASKS_PER_WORKER = 4
SLOTS_AT_LEAST = 8


@dataclass(frozen=True)
class Pace:
    """`group` steps share a slot of `nbytes`; a lone step is cut into `parts` tasks; `ahead` steps are kept."""

    group: int
    parts: int
    ahead: int
    nbytes: int


def set_pace(
    recipe: Recipe,
    layout: Layout | None,
    *,
    steps: int,
    workers: int,
    prefetch: int | None,
    memory_limit: int,
    group_bytes: int,
    seconds_per_row: float,
    payload_per_row: float,
) -> Pace:
    """The pace for batches of this layout and cost. `seconds_per_row` 0 means that it is not known yet.

    >>> import numpy as np, infeed
    >>> recipe = infeed.arrays(np.zeros((10_000, 4))).batch(10).recipe()
    >>> pace = set_pace(recipe, recipe.known_layout(), steps=1000, workers=2, prefetch=None,
    ...                 memory_limit=1 << 30, group_bytes=1 << 22, seconds_per_row=1e-5, payload_per_row=0)
    >>> pace.group, pace.parts, pace.ahead
    (20, 1, 100)
    """
    rows = recipe.plan.rows_per_step
    seconds = rows * seconds_per_row
    if not seconds:
        seconds = rows * 1e-7 + (layout.nbytes(rows) / 5e9 if layout else 0.0)
    payload = payload_bytes(layout, rows, payload_per_row)
    step_bytes = max(1, slot_bytes(rows, layout, payload))
    most_bytes = min(group_bytes, memory_limit // SLOTS_AT_LEAST)
    group = min(int(GROUP_SECONDS / max(seconds, 1e-7)), most_bytes // step_bytes, GROUP_STEPS, steps)
    if prefetch is not None:
        group = min(group, prefetch // 2)
    group = max(1, group)
    units = rows // recipe.plan.micro_batch if recipe.whole_batches else rows
    if recipe.asks_for_batches or not workers:
        parts = 1  # a call may cost the same for few samples as for many
    else:
        parts = max(1, min(int(seconds / TASK_SECONDS), TASKS_PER_WORKER * workers, units))
    if prefetch is not None:
        ahead = max(prefetch, group)
    elif workers:
        ahead = (3 if parts >= workers else 2 * workers + 1) * group
    else:
        ahead = group
    payload = payload_bytes(layout, rows * group, payload_per_row)
    return Pace(group, parts, ahead, slot_bytes(rows * group, layout, payload))


def payload_bytes(layout: Layout | None, rows: int, per_row: float) -> int:
    """Room for what has no row in the slot, from what was seen so far.

    >>> payload_bytes(None, rows=100, per_row=1000)
    129096
    """
    least = 4096 if layout is None or layout.has_objects else 0
    return int(rows * per_row * 1.25) + least
