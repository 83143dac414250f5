"""Several sources as one: side by side (zip), end to end (concat), or mixed by weight (choose)."""

from __future__ import annotations

import builtins
import math
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infeed.errors import PipelineError
from infeed.sources.accepted import as_indexed
from infeed.sources.source import Column, Columns, IntArray, Rows, Source, assemble
from infeed.trees import LEAF, Tree


class ZipSource(Source):
    """What `zip` makes: sample i holds sample i of every member.

    >>> ZipSource(Tree.of((0, 0)), [as_indexed([1, 2], "zip"), as_indexed([3, 4], "zip")])[1]
    (2, 4)
    """

    def __init__(self, tree: Tree, members: list[Source]):
        self.tree = tree
        self.members = members
        self._columns = self._side_by_side()

    def __len__(self) -> int:
        return len(self.members[0])

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        return assemble(self.tree, [member.fetch(indices, epoch) for member in self.members])

    @property
    def columns(self) -> Columns | None:
        return self._columns

    @property
    def thread_safe(self) -> bool:
        return all(member.thread_safe for member in self.members)

    def _side_by_side(self) -> Columns | None:
        parts = [member.columns for member in self.members]
        known = [part for part in parts if part is not None]
        if len(known) < len(parts):
            return None
        tree = Tree(self.tree.kind, self.tree.keys, tuple(part.tree for part in known))
        return Columns(tree, [column for part in known for column in part.columns])


def zip(*sources: Any, **named: Any) -> ZipSource:
    """Sources side by side, all of one length: tuples of their samples, or dicts when they are named.

    >>> zip(image=["a", "b"], label=[0, 1])[1]
    {'image': 'b', 'label': 1}
    """
    if bool(sources) == bool(named):
        raise PipelineError(
            "zip takes either sources or named sources, and at least one: zip(a, b) or zip(x=a, y=b)"
        )
    members = [as_indexed(member, "zip") for member in (sources or named.values())]
    keys: tuple[Any, ...] = tuple(named) or tuple(range(len(members)))
    lengths = [len(member) for member in members]
    if len(set(lengths)) > 1:
        listed = ", ".join(
            f"{key} has {length}" if named else f"source {key} has {length}"
            for key, length in builtins.zip(keys, lengths, strict=True)
        )
        raise PipelineError(f"zip needs sources of one length: {listed}; shorten the longer ones with take")
    return ZipSource(Tree("dict" if named else "tuple", keys, (LEAF,) * len(keys)), members)


class RoutedSource(Source):
    """Several members as one long source; a kind says which member, and which of its samples, an index is.

    >>> issubclass(ConcatSource, RoutedSource) and issubclass(ChooseSource, RoutedSource)
    True
    """

    members: list[Source]

    @abstractmethod
    def route(self, indices: IntArray) -> tuple[NDArray[Any], IntArray]:
        """For each index, the number of the member and the index inside it."""

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        samples: list[Any] = [None] * len(indices)
        for member, rows, local in _routes(self, indices):
            found = self.members[member].fetch(local, epoch)
            for row, sample in builtins.zip(rows.tolist(), found, strict=True):
                samples[row] = sample
        return samples

    @property
    def columns(self) -> Columns | None:
        parts = [member.columns for member in self.members]
        first = parts[0]
        if first is None or any(part is None or not _alike(part, first) for part in parts):
            return None
        by_leaf = builtins.zip(*(part.columns for part in parts if part is not None), strict=True)
        return Columns(first.tree, [RoutedColumn(self, list(columns)) for columns in by_leaf])

    @property
    def thread_safe(self) -> bool:
        return all(member.thread_safe for member in self.members)


class RoutedColumn(Column):
    """One leaf of a `RoutedSource`: the same leaf of each member.

    >>> concat(np.arange(3), np.arange(10, 13)).columns.columns[0].take(np.array([4, 0]))
    array([11,  0])
    """

    def __init__(self, source: RoutedSource, columns: list[Column]):
        self.source = source
        self.columns = columns
        self.dtype = columns[0].dtype
        self.shape = columns[0].shape

    def take(self, indices: IntArray, out: NDArray[Any] | None = None) -> Rows:
        routes = _routes(self.source, indices)
        if len(routes) == 1:  # no scattering, which would be a second copy
            member, _, local = routes[0]
            return self.columns[member].take(local, out)
        if self.dtype is None or self.shape is None:
            return self._scattered(routes, len(indices))
        block = np.empty((len(indices), *self.shape), self.dtype) if out is None else out
        for member, rows, local in routes:
            block[rows] = self.columns[member].take(local)
        return block

    def _scattered(self, routes: list[tuple[int, IntArray, IntArray]], count: int) -> list[Any]:
        found: list[Any] = [None] * count
        for member, rows, local in routes:
            for row, value in builtins.zip(rows.tolist(), self.columns[member].take(local), strict=True):
                found[row] = value
        return found


def _routes(source: RoutedSource, indices: IntArray) -> list[tuple[int, IntArray, IntArray]]:
    """For each member that is needed: its number, the rows it fills, and its own indices."""
    picks, local = source.route(indices)
    if not len(picks) or (picks == picks[0]).all():
        member = int(picks[0]) if len(picks) else 0
        return [(member, np.arange(len(indices)), local)]
    routes = []
    for member in np.flatnonzero(np.bincount(picks)).tolist():
        rows = np.flatnonzero(picks == member)
        routes.append((member, rows, local[rows]))
    return routes


def _alike(part: Columns, first: Columns) -> bool:
    def kinds(columns: Columns) -> list[Any]:
        return [(column.dtype, column.shape) for column in columns.columns]

    return part.tree == first.tree and kinds(part) == kinds(first)


class ConcatSource(RoutedSource):
    """What `concat` makes: the members' samples one after the other.

    >>> len(ConcatSource([as_indexed([1, 2], "concat"), as_indexed([3], "concat")]))
    3
    """

    def __init__(self, members: list[Source]):
        self.members = members
        lengths = [len(member) for member in members]
        self.starts: IntArray = np.cumsum([0, *lengths])[:-1]
        self._length = sum(lengths)

    def __len__(self) -> int:
        return self._length

    def route(self, indices: IntArray) -> tuple[NDArray[Any], IntArray]:
        picks = np.searchsorted(self.starts, indices, side="right") - 1
        return picks, indices - self.starts[picks]


def concat(*sources: Any) -> ConcatSource:
    """Sources end to end, in the order given.

    >>> list(concat([1, 2], [3]))
    [1, 2, 3]
    """
    if not sources:
        raise PipelineError("concat takes at least one source: concat(a, b)")
    return ConcatSource([as_indexed(member, "concat") for member in sources])


class ChooseSource(RoutedSource):
    """What `choose` makes: for every position, which member it is drawn from and the how-manieth draw it is.

    >>> members = [as_indexed([1, 2], "choose"), as_indexed([3], "choose")]
    >>> list(ChooseSource(members, np.array([0, 1, 0]), np.array([0, 0, 1])))
    [1, 3, 2]
    """

    def __init__(self, members: list[Source], picks: NDArray[Any], ranks: IntArray):
        self.members = members
        self.picks = picks
        self.ranks = ranks
        self.lengths: IntArray = np.array([len(member) for member in members], np.int64)

    def __len__(self) -> int:
        return len(self.picks)

    def route(self, indices: IntArray) -> tuple[NDArray[Any], IntArray]:
        picks = self.picks[indices]
        return picks, self.ranks[indices] % self.lengths[picks]


def choose(
    sources: Sequence[Any],
    weights: Sequence[float] | None = None,
    stop: Literal["first", "all"] | int = "first",
) -> ChooseSource:
    """Sources mixed evenly in proportion to `weights` (None: equally), each in its own order, without chance.

    `stop` says where it ends: `"first"` when the first source would run out, so that no sample comes twice;
    `"all"` when every source has been drawn completely, shorter ones starting over until then; a number:
    after exactly that many samples, sources starting over as needed.

    >>> list(choose([["a", "b"], [1, 2, 3, 4]], weights=[1, 2]))
    [1, 'a', 2, 3, 'b', 4]
    >>> list(choose([["a"], [1, 2, 3]], stop="all"))
    ['a', 1, 'a', 2, 'a', 3]
    >>> list(choose([["a"], [1, 2, 3]], stop=3))
    ['a', 1, 'a']
    """
    members = [as_indexed(member, "choose") for member in sources]
    lengths = [len(member) for member in members]
    shares = _checked_weights(weights, lengths)
    counted = isinstance(stop, int) and not isinstance(stop, bool) and stop >= 1
    if not counted and stop not in ("first", "all"):
        raise PipelineError(f'stop must be "first", "all" or a positive number of samples, and is {stop!r}')
    picks, ranks = _draws(np.array(lengths, np.int64), shares, stop)
    return ChooseSource(members, picks, ranks)


def _checked_weights(weights: Sequence[float] | None, lengths: list[int]) -> NDArray[np.float64]:
    if not 1 <= len(lengths) <= 2**16:
        raise PipelineError(f"choose takes between one source and 65,536, and was given {len(lengths)}")
    if not all(lengths):
        raise PipelineError(f"source {lengths.index(0)} of choose is empty; leave it out")
    shares = [1.0] * len(lengths) if weights is None else [float(weight) for weight in weights]
    if len(shares) != len(lengths):
        raise PipelineError(f"choose was given {len(lengths)} sources and {len(shares)} weights; one for each")
    for weight in shares:
        if not (math.isfinite(weight) and weight > 0):
            raise PipelineError(f"weights must be above zero, and one is {weight}; leave that source out")
    return np.array(shares)


def _draws(
    lengths: IntArray, weights: NDArray[np.float64], stop: Literal["first", "all"] | int
) -> tuple[NDArray[Any], IntArray]:
    """Which member each position draws from, and the how-manieth draw of that member it is.

    Draw j of a member of weight w happens at time (j + 0.5) / w; positions are the draws sorted by time, and
    by member where times are equal.
    """
    if stop == "first":
        horizon = float(np.min((lengths + 0.5) / weights))
    elif stop == "all":
        horizon = float(np.max((lengths - 0.5) / weights))
    else:
        # up to a time T there are at least w T - 0.5 draws of each member
        horizon = (int(stop) + len(lengths)) / float(weights.sum())
    counts = np.floor(weights * horizon + 0.5).astype(np.int64) + 2  # two more than can matter, for rounding
    ranks = np.concatenate([np.arange(count, dtype=np.int64) for count in counts])
    picks = np.repeat(np.arange(len(lengths), dtype=np.uint8 if len(lengths) <= 256 else np.uint16), counts)
    by_time = np.argsort((ranks + 0.5) / weights[picks], kind="stable")
    ranks, picks = ranks[by_time], picks[by_time]
    if stop == "first":
        end = int(np.argmax(ranks >= lengths[picks]))
    elif stop == "all":
        end = int(np.flatnonzero(ranks == lengths[picks] - 1)[-1]) + 1
    else:
        end = int(stop)
    return picks[:end].copy(), ranks[:end].copy()
