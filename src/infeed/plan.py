"""How many samples make one step, which of them a replica gets, and how a step is walked.

Inside a step the samples lie in the order in which a machine with several replicas uses them: iteration, then
accumulation step, then replica, then row of the micro-batch. Sample m of the micro-batch of replica r, in
accumulation step a of iteration i of a step, is at this position of the epoch:

    step * samples_per_step + ((i * accumulate + a) * replicas + r) * micro_batch + m
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from infeed.errors import LayoutError, PipelineError
from infeed.order.counts import as_count
from infeed.order.order import IntArray
from infeed.trees import LEAF, Tree

Last = Literal["keep", "drop", "wrap"]


class Micro(NamedTuple):
    """One micro-batch of a step, and whose it is.

    >>> Micro(iteration=0, accumulation=1, replica=3, batch=[7, 8]).replica
    3
    """

    iteration: int
    accumulation: int
    replica: int
    batch: Any


class MicroBatches(list[Any]):
    """A step whose micro-batches were collated one by one, in the order of the plan.

    Ragged batches are made this way: rows of different sizes laid end to end cannot be cut at a micro-batch.

    >>> MicroBatches([{"x": 1}, {"x": 2}])
    MicroBatches([{'x': 1}, {'x': 2}])
    """

    def __repr__(self) -> str:
        return f"MicroBatches({super().__repr__()})"


@dataclass(frozen=True)
class Plan:
    """The sizes of one step: micro-batch x accumulation steps x replicas x iterations.

    `replica=None` is one process that drives all replicas and gets whole steps; `replica=r` is rank r of
    several processes and gets its own share, disjoint from the others' and as large.

    >>> plan = Plan(16, accumulate=2, replicas=4, iterations=50)
    >>> plan.replica_batch, plan.global_batch, plan.samples_per_step
    (32, 128, 6400)
    >>> Plan(2, replicas=3, replica=1).positions(step=1, n=12, last="keep").tolist()
    [8, 9]
    """

    micro_batch: int
    accumulate: int = 1
    replicas: int = 1
    replica: int | None = None
    iterations: int = 1

    def __post_init__(self) -> None:
        for name in ("micro_batch", "accumulate", "replicas", "iterations"):
            object.__setattr__(self, name, as_count(name, getattr(self, name)))
        if self.replica is None:
            return
        object.__setattr__(self, "replica", as_count("replica", self.replica, least=0))
        if self.replica >= self.replicas:
            raise PipelineError(
                f"there is no replica {self.replica} of {self.replicas}. Replicas count from 0 to "
                f"{self.replicas - 1}; give None for one process that drives them all."
            )

    @cached_property
    def replica_batch(self) -> int:
        """Samples of one replica in one update of the weights."""
        return self.micro_batch * self.accumulate

    @cached_property
    def global_batch(self) -> int:
        """Samples of all replicas in one update of the weights."""
        return self.replica_batch * self.replicas

    @cached_property
    def samples_per_step(self) -> int:
        """Samples of all replicas in one step."""
        return self.global_batch * self.iterations

    @cached_property
    def rows_per_step(self) -> int:
        """Samples this loader yields in a full step: its own replica's, or all."""
        return self.samples_per_step // self._shares

    @cached_property
    def micro_batches_per_step(self) -> int:
        """Micro-batches this loader yields in a full step."""
        return self.rows_per_step // self.micro_batch

    @cached_property
    def is_contiguous(self) -> bool:
        """Whether the rows of a step are consecutive positions."""
        return self._shares == 1

    @cached_property
    def _shares(self) -> int:
        """Into how many shares a step is cut among processes."""
        return 1 if self.replica is None else self.replicas

    def steps(self, n: int, last: Last) -> int:
        """The steps of an epoch of `n` samples; equal on every replica.

        >>> Plan(4).steps(10, "keep"), Plan(4).steps(10, "drop"), Plan(4).steps(10, "wrap")
        (3, 2, 3)
        """
        return n // self.samples_per_step if last == "drop" else -(-n // self.samples_per_step)

    def check(self, n: int, last: Last) -> None:
        """`PipelineError` when an epoch of `n` samples cannot be cut into steps of this plan.

        >>> Plan(4).check(10, "keep")
        """
        if last not in get_args(Last):
            raise PipelineError(f"last is {last!r}. Give 'keep', 'drop' or 'wrap'.")
        if n == 0:
            raise PipelineError("there are no samples. Check the source, and the takes, skips and splits after it.")
        if last == "drop" and n < self.samples_per_step:
            raise PipelineError(
                f"dropping the short last step leaves none: a step takes {self.samples_per_step} samples and "
                f"there are {n}. Use a smaller plan, or last='keep' or 'wrap'."
            )
        if last == "keep" and not self.is_contiguous and n % (self.replicas * self.micro_batch):
            raise PipelineError(
                f"keeping the short last step would give replicas unequal steps: {n} samples do not fill "
                f"whole micro-batches of {self.micro_batch} on {self.replicas} replicas. Use last='drop' "
                "(leaves the rest out) or last='wrap' (fills up with the epoch's first samples)."
            )

    def rows(self, step: int, n: int, last: Last) -> int:
        """How many rows this loader yields in that step.

        >>> [Plan(4).rows(step, 10, "keep") for step in range(3)]
        [4, 4, 2]
        """
        self._check_step(step, n, last)
        left = n - step * self.samples_per_step
        if last != "keep" or left >= self.samples_per_step:
            return self.rows_per_step
        if self.is_contiguous:
            return left
        rounds, rest = divmod(left, self.replicas * self.micro_batch)
        before = (self.replica or 0) * self.micro_batch
        return rounds * self.micro_batch + min(max(rest - before, 0), self.micro_batch)

    def positions(self, step: int, n: int, last: Last) -> IntArray:
        """The positions, in the whole epoch, of the rows this loader yields in that step.

        A kept short step has fewer. A wrapped one has positions of `n` and beyond, which mean the epoch's
        first samples again.

        >>> Plan(4).positions(2, 10, "keep").tolist(), Plan(4).positions(2, 10, "wrap").tolist()
        ([8, 9], [8, 9, 10, 11])
        """
        self._check_step(step, n, last)
        start = step * self.samples_per_step
        if self.is_contiguous:
            return np.arange(start, start + self.rows(step, n, last), dtype=np.int64)
        stride = self.replicas * self.micro_batch
        first = start + (self.replica or 0) * self.micro_batch
        starts = np.arange(first, start + self.samples_per_step, stride, dtype=np.int64)
        positions = np.add.outer(starts, np.arange(self.micro_batch)).ravel()
        return positions[positions < n] if last == "keep" else positions

    def _check_step(self, step: int, n: int, last: Last) -> None:
        if not 0 <= step < self.steps(n, last):
            raise PipelineError(
                f"there is no step {step}: an epoch of {n} samples has {self.steps(n, last)} of this plan."
            )

    def split(self, batch: Any) -> Iterator[Micro]:
        """The micro-batches of one step, in order, as views: nothing is copied.

        `batch` is what the loader yields. Every array, tensor or list in it is cut along its first axis; a
        short last step gives fewer micro-batches, the last of them maybe shorter. A list of arrays that all
        have the same length is structure, as it is in a sample; other lists are columns.

        >>> plan = Plan(2, replicas=2)
        >>> for micro in plan.split({"x": np.arange(4)}):
        ...     print(micro.replica, micro.batch["x"])
        0 [0 1]
        1 [2 3]
        """
        if isinstance(batch, MicroBatches):
            if len(batch) > self.micro_batches_per_step:
                raise LayoutError(
                    f"the step has {len(batch)} micro-batches, a step of {self} has "
                    f"{self.micro_batches_per_step}. Split a batch with the plan it was made by."
                )
            return (self._micro(number, part) for number, part in enumerate(batch))
        return self._split_rows(batch)

    def _split_rows(self, batch: Any) -> Iterator[Micro]:
        tree = _structure(Tree.of(batch), batch, self.rows_per_step)
        leaves = tree.leaves(batch)
        rows = _common_rows(tree.names, leaves)
        if rows > self.rows_per_step:
            raise LayoutError(
                f"the batch has {rows} rows, a step of {self} has {self.rows_per_step}. "
                "Split a batch with the plan it was made by."
            )
        size = self.micro_batch
        return (
            self._micro(start // size, tree.build([leaf[start : min(start + size, rows)] for leaf in leaves]))
            for start in range(0, rows, size)
        )

    def _micro(self, number: int, batch: Any) -> Micro:
        """The `number`-th micro-batch of what this loader yields."""
        if self.replica is None:
            number, replica = divmod(number, self.replicas)
        else:
            replica = self.replica
        return Micro(*divmod(number, self.accumulate), replica, batch)


def _structure(tree: Tree, batch: Any, most: int) -> Tree:
    """The tree of a batch, in which a list of rows is a leaf, although in a sample a list is structure."""
    if tree.kind == "leaf":
        return tree
    if tree.kind == "list" and _rows_inside(batch, most) is None:
        return LEAF
    parts = (
        batch.values()
        if tree.kind == "dict"
        else (getattr(batch, key) for key in tree.keys)
        if tree.kind == "dataclass"
        else batch
    )
    children = tuple(_structure(child, part, most) for child, part in zip(tree.children, parts, strict=True))
    return replace(tree, children=children)


def _rows_inside(batch: list[Any], most: int) -> int | None:
    """The rows that all items of a list have in common, if the list is structure and not itself the rows."""
    found: set[int | None] = set()
    for item in batch:
        found.add(_rows(item, most))
        if None in found or len(found) > 1:
            return None
    return next(iter(found), None)


def _rows(value: Any, most: int) -> int | None:
    """The rows of the first column inside `value`, or None when there is none that fits in a step."""
    if isinstance(value, list):
        inside = _rows_inside(value, most)
        return inside if inside is not None else len(value)
    if isinstance(value, dict):
        value = tuple(value.values())
    if isinstance(value, tuple):
        return next((rows for part in value if (rows := _rows(part, most)) is not None), None)
    shape: tuple[int, ...] = getattr(value, "shape", ())
    return int(shape[0]) if len(shape) and shape[0] <= most else None


def _common_rows(names: tuple[str, ...], leaves: list[Any]) -> int:
    """The number of rows of every leaf; `LayoutError` for one that has none or another number."""
    counts = []
    for name, leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, list) and not len(getattr(leaf, "shape", ())):
            raise LayoutError(
                f"field {name!r} of the batch is of type {type(leaf).__name__} without rows, so it cannot be split "
                "into micro-batches. Make it an array or a list with one entry for each sample."
            )
        counts.append(len(leaf))
    if not counts:
        raise LayoutError("the batch has no fields, so there is nothing to split.")
    for name, count in zip(names, counts, strict=True):
        if count != counts[0]:
            raise LayoutError(
                f"field {names[0]!r} of the batch has {counts[0]} rows and field {name!r} has {count}. "
                "Fields that are split must have one row for each sample."
            )
    return counts[0]
