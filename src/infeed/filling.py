"""One slot on its way: which steps it holds, which tasks are still out, and how batches come out of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from infeed.collate.leaves import describe
from infeed.errors import LayoutError
from infeed.layout import Layout
from infeed.plan import MicroBatches
from infeed.recipe import Recipe, index_view, row_views
from infeed.samples import annotate
from infeed.slots import Lease, Slot
from infeed.tasks import Piece, Reply, Task
from infeed.tensors import from_array, is_tensor, to_array
from infeed.trees import LEAF, Tree, tree_map
from infeed.wire import decode

SMALL_FIELD = 8192


@dataclass(slots=True)
class Filling:
    """A slot being filled, and what is known of it so far.

    It holds the slot's one lease, through `memory`. Whatever is made from `memory`, by a worker in this process or
    by a delivery, holds it too; when all of it is gone, the slot is free. Nobody frees it by hand.
    """

    epoch: int
    first_step: int
    steps: int
    rows: int
    slot: Slot
    layout: int = -1
    out: dict[int, Task] = field(default_factory=dict)
    replies: list[tuple[Task, Reply]] = field(default_factory=list)
    errors: dict[int, BaseException] = field(default_factory=dict)
    abandoned: bool = False
    learning: bool = False
    ended: bool = False
    failed_rows: dict[int, int] = field(default_factory=dict)
    memory: NDArray[np.uint8] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.use(self.slot)

    def use(self, slot: Slot) -> None:
        """Fill this slot; the one before is let go."""
        self.slot = slot
        self.memory = Lease(slot).memory()

    def fail(self, step: int, row: int, error: BaseException) -> None:
        """A step cannot be had; of several exceptions, that of the lowest row is told, whoever was first."""
        if row <= self.failed_rows.get(step, row):
            self.failed_rows[step] = row
            self.errors[step] = error

    @property
    def ready(self) -> bool:
        """Whether all its tasks have answered."""
        return not self.out and not self.learning


class Delivery:
    """Hands out the batches of a filled slot, one step after the other.

    The arrays look into the slot and keep its lease; the lease ends with the last of them. Small fields are
    copied out, so that a kept label does not hold a whole slot.
    """

    def __init__(self, filling: Filling, recipe: Recipe, layout: Layout | None, *, copy: bool):
        self.filling = filling
        self.step = 0
        self.left = filling.steps
        self._recipe = recipe
        self._layout = layout
        self._copy = copy
        self._decoded: dict[int, Any] = {}
        self._memory = filling.memory
        self._slices: Iterator[Any] | None = None
        """Each step as slices of the slot: the fast way."""
        whole = all(reply.in_place for _, reply in filling.replies) and not filling.errors
        if whole and layout is not None:
            columns: list[Any] = _light(row_views(self._memory, filling.rows, layout))
            if layout.has_objects:
                for place, column in zip(_object_places(layout), self._objects(self._memory, layout), strict=True):
                    columns[place] = column
            self._slices = _slices(columns, recipe.plan.rows_per_step, filling.rows, layout)
            del self._memory, filling.memory  # the lease is now in the columns alone

    def next(self) -> Any:
        """The next step's batch, or the exception that took its place."""
        step = self.step
        self.step += 1
        self.left -= 1
        if self._slices is not None:
            batch = next(self._slices)
        elif step in self.filling.errors:
            raise self.filling.errors.pop(step)  # kept here it would keep, by its traceback, the slot
        else:
            batch = self._step_batch(self._memory, step, self._layout)
        return copied(batch) if self._copy else batch

    def _bounds(self, step: int) -> tuple[int, int]:
        size = self._recipe.plan.rows_per_step
        return step * size, min((step + 1) * size, self.filling.rows)

    def _objects(self, memory: NDArray[np.uint8], layout: Layout) -> list[list[Any]]:
        """The columns of objects, which came beside the slot, in the order of the rows."""
        joined: list[list[Any]] = [[] for _ in _object_places(layout)]
        for task, reply in sorted(self.filling.replies, key=lambda pair: pair[0].low):
            for column, part in zip(joined, self._value(task, reply, memory), strict=True):
                column.extend(part)
        return joined

    def _value(self, task: Task, reply: Reply, memory: NDArray[np.uint8]) -> Any:
        """What came beside the rows; decoded once, though several steps may be cut from it."""
        if reply.value is not None or reply.where is None:
            return reply.value
        if task.id not in self._decoded:
            self._decoded[task.id] = decode(reply.where, memory[task.region[0] : task.region[1]])
        return self._decoded[task.id]

    def _step_batch(self, memory: NDArray[np.uint8], step: int, layout: Layout | None) -> Any:
        """One step out of parts that came in different ways."""
        low, high = self._bounds(step)
        parts: list[Piece] = []
        for task, reply in self.filling.replies:
            if task.high <= low or task.low >= high:
                continue
            if reply.in_place:
                assert layout is not None
                parts.append(self._slice(task, reply, memory, layout, max(low, task.low), min(high, task.high)))
            else:
                pieces = self._value(task, reply, memory)
                parts.extend(piece for piece in pieces if piece.low < high and piece.high > low)
        parts.sort(key=lambda piece: piece.low)
        try:
            return join(parts, self._recipe)
        except LayoutError as error:
            indices = index_view(memory, self.filling.rows)
            named = [str(indices[parts[part].low]) for part in getattr(error, "parts", ())]
            where = f"step {self.filling.first_step + step} of epoch {self.filling.epoch}"
            annotate(error, f"these are samples {' and '.join(named)} ({where})" if named else f"in {where}")
            raise

    def _slice(
        self, task: Task, reply: Reply, memory: NDArray[np.uint8], layout: Layout, low: int, high: int
    ) -> Piece:
        columns: list[Any] = [
            None if view is None else view[low:high] for view in row_views(memory, self.filling.rows, layout)
        ]
        if layout.has_objects:
            values = self._value(task, reply, memory)
            for place, column in zip(_object_places(layout), values, strict=True):
                columns[place] = column[low - task.low : high - task.low]
        return Piece(low, high, layout.batch(columns))


def _slices(columns: list[Any], size: int, rows: int, layout: Layout) -> Iterator[Any]:
    """The fast way: each step as slices of the slot. Knows nothing of the delivery, or both would live too long."""
    if rows <= size:
        yield layout.batch(columns)
        return
    for low in range(0, rows, size):
        yield layout.batch([column[low : low + size] for column in columns])


def join(parts: Sequence[Piece], recipe: Recipe) -> Any:
    """One batch out of its parts: rows put together where possible, else micro-batches side by side."""
    if len(parts) == 1 and (not recipe.whole_batches or recipe.plan.micro_batches_per_step == 1):
        return parts[0].batch
    if not recipe.rowwise:
        return MicroBatches(part.batch for part in parts)
    if not recipe.whole_batches:
        return join_rows([part.batch for part in parts])
    layouts = {Layout.of_batch(part.batch, part.high - part.low) for part in parts}
    if len(layouts) > 1 or None in layouts:
        return MicroBatches(part.batch for part in parts)
    return join_rows([part.batch for part in parts])


def join_rows(batches: Sequence[Any]) -> Any:
    """Batches of one structure, dtype and row shape put end to end.

    >>> join_rows([{"x": np.array([1]), "name": ["a"]}, {"x": np.array([2]), "name": ["b"]}])
    {'x': array([1, 2]), 'name': ['a', 'b']}
    """
    tree = _batch_tree(batches[0])
    leaves: list[Any] = []
    for name, column in zip(tree.names, tree.columns(batches), strict=True):
        if isinstance(column[0], list):
            leaves.append([value for part in column for value in part])
            continue
        arrays = [to_array(part) if is_tensor(part) else np.asarray(part) for part in column]
        _check_alike(name, arrays)
        joined: Any = np.concatenate(arrays)  # type: ignore[arg-type]
        leaves.append(from_array(joined) if is_tensor(column[0]) else joined)
    return tree.build(leaves)


def _check_alike(name: str, arrays: Sequence[Any]) -> None:
    kinds = [(array.dtype, array.shape[1:]) for array in arrays]
    for part, kind in enumerate(kinds):
        if kind != kinds[0]:
            error = LayoutError(
                f"{describe(name)}: rows of shape {kinds[0][1]} ({kinds[0][0]}) and of shape {kind[1]} ({kind[0]}) "
                'in one batch; use collate="pad", "concat" or "list", or make them equal with a map'
            )
            error.parts = (0, part)  # type: ignore[attr-defined]
            raise error


def _batch_tree(batch: Any) -> Tree:
    """The tree of a batch whose lists are columns of objects, not containers."""
    return _without_columns(Tree.of(batch), batch)


def _without_columns(tree: Tree, batch: Any) -> Tree:
    if tree.kind == "leaf":
        return tree
    if tree.kind == "list" and not all(
        isinstance(item, np.ndarray | dict | tuple | list) or is_tensor(item) for item in batch
    ):
        return LEAF
    if tree.kind == "dict":
        parts: Sequence[Any] = list(batch.values())
    else:
        parts = [getattr(batch, key) for key in tree.keys] if tree.kind == "dataclass" else batch
    children = tuple(map(_without_columns, tree.children, parts))
    return Tree(tree.kind, tree.keys, children, tree.type)


def _light(views: list[NDArray[Any] | None]) -> list[Any]:
    """The views, with small fields copied out where a large one stands beside them."""
    largest = max((view.nbytes for view in views if view is not None), default=0)
    if largest <= SMALL_FIELD:
        return list(views)
    return [view.copy() if view is not None and view.nbytes <= SMALL_FIELD else view for view in views]


def _object_places(layout: Layout) -> list[int]:
    return [place for place, field in enumerate(layout.fields) if field.dtype is None]


def copied(batch: Any) -> Any:
    """A batch that looks into no slot.

    >>> copied({"x": np.zeros(2)})
    {'x': array([0., 0.])}
    """
    if isinstance(batch, MicroBatches):
        return MicroBatches(map(copied, batch))
    return tree_map(own, batch)


def own(leaf: Any) -> Any:
    """A copy of an array or tensor that looks into a slot."""
    if isinstance(leaf, np.ndarray):
        return leaf.copy()
    clone = getattr(leaf, "clone", None)
    return clone() if clone is not None else leaf
