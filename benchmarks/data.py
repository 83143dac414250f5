"""The datasets. The same object is handed to every loader. Sample `i` carries its own number, so that a
warm-up epoch can check that each contestant gives every sample exactly once."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
LOAD_SECONDS = 0.005
TRAIN_SECONDS = 0.010


@dataclass(frozen=True)
class Sizes:
    """How large the works are, and how long a turn is timed at least."""

    rows: int = 200_000
    images: int = 10_000
    few_images: int = 1_600
    graphs: int = 8_192
    busy: int = 1_920
    busy_seconds: float = 0.001
    step: int = 800
    large_step: int = 3_200
    wait_epochs: int = 5
    seconds: float = 0.3
    strings: int = 1_000_000
    memory_epochs: int = 20
    slow_memory_epochs: int = 5


QUICK = Sizes(
    rows=8_192,
    images=400,
    few_images=160,
    graphs=512,
    busy=192,
    busy_seconds=0.0001,
    step=80,
    large_step=160,
    wait_epochs=2,
    seconds=0.01,
    strings=20_000,
    memory_epochs=4,
    slow_memory_epochs=3,
)


def numbered(count: int, *shape: int) -> Array:
    """`count` rows of float32 noise, whose first value is the number of the row."""
    rng = np.random.default_rng(0)
    x = np.empty((count, *shape), np.float32)
    for low in range(0, count, 4096):
        part = x[low : low + 4096]
        rng.random(dtype=np.float32, out=part)
    x.reshape(count, -1)[:, 0] = np.arange(count)
    return x


class Items:
    """What a user writes for torch: an array, one row at a time. A list of indices gives a whole batch."""

    def __init__(self, x: Array):
        self.x = x

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: Any) -> Any:
        return self.x[index]


class Graphs:
    """Graphs of 5 to 200 nodes as dicts, all in memory."""

    def __init__(self, count: int):
        rng = np.random.default_rng(0)
        nodes = rng.integers(5, 201, count)
        self.graphs = [self._graph(rng, number, int(size)) for number, size in enumerate(nodes)]

    @staticmethod
    def _graph(rng: np.random.Generator, number: int, nodes: int) -> dict[str, Any]:
        return {
            "x": rng.random((nodes, 16), dtype=np.float32),
            "edge_index": rng.integers(0, nodes, (2, 2 * nodes)),
            "y": number,
        }

    def __len__(self) -> int:
        return len(self.graphs)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return self.graphs[index]


def concat_graphs(graphs: Sequence[dict[str, Any]]) -> dict[str, Array]:
    """By hand what `infeed.Concat` makes of a list of graphs."""
    x = [graph["x"] for graph in graphs]
    edges = [graph["edge_index"] for graph in graphs]
    x_offsets = np.cumsum([0, *map(len, x)])
    edge_offsets = np.cumsum([0, *(edge.shape[1] for edge in edges)])
    edge_index = np.concatenate(edges, axis=1)
    edge_index += np.repeat(x_offsets[:-1], np.diff(edge_offsets))
    return {
        "x": np.concatenate(x),
        "edge_index": edge_index,
        "y": np.array([graph["y"] for graph in graphs]),
        "x_offsets": x_offsets,
        "edge_index_offsets": edge_offsets,
    }


def spin(turns: int) -> float:
    """Pure Python work that holds the interpreter lock."""
    total = 0.0
    for number in range(turns):
        total += number * 0.5
    return total


def turns_for(seconds: float) -> int:
    """How many turns of `spin` take that long on this machine when nothing disturbs it."""
    turns, best = 1_000, float("inf")
    for _ in range(200):
        began = time.perf_counter()
        spin(turns)
        best = min(best, time.perf_counter() - began)
    return max(1, round(turns * seconds / best))


class Busy(Items):
    """Rows that each cost a stretch of pure Python."""

    def __init__(self, x: Array, turns: int):
        super().__init__(x)
        self.turns = turns

    def __getitem__(self, index: int) -> Any:
        spin(self.turns)
        return self.x[index]


class Waiting(Items):
    """Each batch waits 5 ms, as for a database or a disk; asked for singly, each sample does."""

    def __getitem__(self, index: int) -> Any:
        time.sleep(LOAD_SECONDS)
        return self.x[index]

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        time.sleep(LOAD_SECONDS)
        return list(self.x[np.asarray(indices)])


def stack_items(dataset: Any, indices: Array) -> Array:
    """A batch as a plain loop makes it: item by item, or all at once where the dataset offers that."""
    wanted = indices.tolist()
    many = getattr(dataset, "__getitems__", None)
    return np.stack(many(wanted) if many is not None else [dataset[index] for index in wanted])


def concat_items(dataset: Graphs, indices: Array) -> dict[str, Array]:
    """A batch of graphs as a plain loop makes it."""
    return concat_graphs([dataset[index] for index in indices.tolist()])


def gather(dataset: Items, indices: Array) -> Array:
    """A batch by numpy's own indexing."""
    batch: Array = dataset.x[indices]
    return batch


def ids(batch: Any) -> Array:
    """The numbers of the samples in a batch, whoever made it."""
    while isinstance(batch, tuple | list) and len(batch) == 1:
        batch = batch[0]
    if isinstance(batch, dict):
        return np.asarray(batch["y"]).astype(np.int64)
    array = np.asarray(batch)
    return array.reshape(len(array), -1)[:, 0].astype(np.int64)


def paths(count: int) -> list[str]:
    """Many strings of the kind a list of files is made of."""
    return [f"train/class_{number % 1000:04d}/image_{number:08d}.jpg" for number in range(count)]
