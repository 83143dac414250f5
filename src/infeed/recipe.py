"""What a worker must know to do the tasks of one loader: the pipeline, settled and picklable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from infeed.collate import Collate, Stack
from infeed.layout import Field, Layout, aligned
from infeed.plan import Last, Plan
from infeed.sources import Columns, IterableSource, Source
from infeed.stages import Stage

INDEX_BYTES = 8


@dataclass(frozen=True)
class Recipe:
    """Source, stages and plan; the same in every worker, and all that the stream depends on but the order."""

    source: Source | IterableSource
    stages: tuple[Stage, ...]
    collate: Collate
    batch_stages: tuple[Stage, ...]
    plan: Plan
    size: int
    last: Last
    seed: int
    on_error: str = "raise"
    fixed_shapes: bool = False

    @cached_property
    def scanned(self) -> bool:
        """Whether batches can only be found by going through the data: filters and iterables."""
        return isinstance(self.source, IterableSource) or self.last_filter >= 0

    @cached_property
    def last_filter(self) -> int:
        """The place of the last filter among the stages, or -1."""
        return max((i for i, stage in enumerate(self.stages) if stage.kind == "filter"), default=-1)

    @cached_property
    def while_finding(self) -> int:
        """How many stages are run while samples are looked for: up to the last filter, or all, when bad samples are
        to be left out, because a batch must not become short afterwards."""
        return len(self.stages) if self.on_error == "replace" else self.last_filter + 1

    @cached_property
    def whole_batches(self) -> bool:
        """Whether functions see whole micro-batches, so that tasks must not cut through them."""
        return bool(self.batch_stages) or not isinstance(self.collate, Stack)

    @cached_property
    def rowwise(self) -> bool:
        """Whether a batch may be written into rows of a slot, if its arrays turn out to have them."""
        return isinstance(self.collate, Stack)

    @cached_property
    def asks_for_batches(self) -> bool:
        """Whether the user's own code is asked for many samples in one call, at a cost that only they know."""
        return isinstance(self.source, Source) and self.source.asks_for_batches

    @cached_property
    def gathers(self) -> bool:
        """Whether the samples are never taken apart: whole columns go straight into the batch."""
        if self.stages or not isinstance(self.source, Source) or not isinstance(self.collate, Stack):
            return False
        columns = self.source.columns
        return columns is not None and all(
            column.dtype is not None and not column.dtype.hasobject for column in columns.columns
        )

    def columns(self) -> Columns:
        """The columns of a source that `gathers`."""
        columns = self.source.columns if isinstance(self.source, Source) else None
        assert columns is not None
        return columns

    def known_layout(self) -> Layout | None:
        """The layout, where it is plain without making a sample: arrays as they are, or a declared `out`."""
        if self.whole_batches or self.scanned:
            return None
        if self.gathers:
            columns = self.columns()
            fields = (
                Field(name, column.dtype, column.shape or ())
                for name, column in zip(columns.tree.names, columns.columns, strict=True)
            )
            return Layout(columns.tree, tuple(fields))
        return self.stages[-1].out if self.stages else None

    def units(self, low: int, high: int) -> list[tuple[int, int]]:
        """Rows `low` to `high` of a slot, cut into micro-batches."""
        size, step_rows = self.plan.micro_batch, self.plan.rows_per_step
        cuts, at = [], low
        while at < high:
            step_start = at - at % step_rows
            end = min(high, step_start + ((at - step_start) // size + 1) * size, step_start + step_rows)
            cuts.append((at, end))
            at = end
        return cuts

    def places(self, first_step: int, low: int, high: int) -> Sequence[int]:
        """The same as `positions`, as plain numbers, at no cost where they are consecutive."""
        if self.plan.is_contiguous:
            start = first_step * self.plan.samples_per_step
            return range(start + low, start + high)
        return cast(Sequence[int], self.positions(first_step, low, high).tolist())

    def positions(self, first_step: int, low: int, high: int) -> NDArray[np.int64]:
        """The positions in the epoch of rows `low` to `high` of a slot that begins with `first_step`."""
        if self.plan.is_contiguous:
            start = first_step * self.plan.samples_per_step
            return np.arange(start + low, start + high, dtype=np.int64)
        step_rows = self.plan.rows_per_step
        first, last = low // step_rows, -(-high // step_rows)
        parts = [self.plan.positions(first_step + step, self.size, self.last) for step in range(first, last)]
        return np.concatenate(parts)[low - first * step_rows : high - first * step_rows]


def slot_bytes(rows: int, layout: Layout | None, payload: int) -> int:
    """Bytes of a slot: the indices of its rows, the rows themselves, and room for what has no row.

    >>> slot_bytes(rows=10, layout=None, payload=100)
    256
    """
    return aligned(rows * INDEX_BYTES) + (layout.nbytes(rows) if layout else 0) + aligned(payload)


def index_view(memory: NDArray[np.uint8], rows: int) -> NDArray[np.int64]:
    """The indices at the head of a slot."""
    return np.ndarray((rows,), np.int64, memory, 0)


def row_views(memory: NDArray[np.uint8], rows: int, layout: Layout) -> list[NDArray[Any] | None]:
    """The fields of a slot, behind its indices."""
    return layout.views(memory[aligned(rows * INDEX_BYTES) :], rows)
