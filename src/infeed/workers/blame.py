"""Who is to blame when workers end: which sample or batch a task had in hand, and how to say so."""

from __future__ import annotations

from infeed.errors import SampleKilledWorker
from infeed.tasks import BadRow, Task
from infeed.workers.crew import Job


def culprit(job: Job, task: Task, row: int, index: int, deaths: str) -> BadRow:
    """The sample that ended its workers, as a bad row with the exception that names it."""
    position = task.first_step + row
    if task.kind == "fill":
        row += task.low
        position = int(job.recipe.positions(task.first_step, row, row + 1)[0])
    shard = f" of shard {task.shard!r}" if task.kind == "read" else ""
    error = SampleKilledWorker(
        f"sample {index}{shard} (position {position} of epoch {task.epoch}) {deaths}. It may need more "
        "memory than there is, or crash the library that reads it"
    )
    return BadRow(row, index, position, error)


def marks_rows(job: Job, task: Task) -> bool:
    """Whether a careful task marks what it has in hand all the time."""
    stages = job.recipe.stages
    return task.kind in ("fill", "sift") and not (stages and stages[-1].out is not None)


def rows_of(task: Task) -> str:
    """The rows of a task, for messages."""
    return f"rows {task.low} to {task.high - 1} of step {task.first_step}" if task.kind == "fill" else "samples"
