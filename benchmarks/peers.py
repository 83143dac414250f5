"""The other loaders: torch's DataLoader, BatchUp, and a plain loop with no loader at all.

torch and BatchUp are imported where they are used, so that the memory of the others is measured without them.
BatchUp 0.2.3 runs on current Python as it is, as long as it is given a data source of its own class.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

MakeBatch = Callable[[Any, NDArray[np.int64]], Any]
BUFFERED_BYTES = 1 << 28


class LoopFeed:
    """A shuffled loop as one writes it by hand: `make(dataset, indices)` for each batch."""

    note = ""

    def __init__(self, dataset: Any, batch: int, make: MakeBatch):
        self.dataset, self.batch, self.make = dataset, batch, make
        self.steps = -(-len(dataset) // batch)
        self._rng = np.random.default_rng(0)

    def epoch(self) -> Iterator[Any]:
        """Begin an epoch in a new order."""
        order = self._rng.permutation(len(self.dataset))
        for low in range(0, len(order), self.batch):
            yield self.make(self.dataset, order[low : low + self.batch])

    def jump(self) -> None:
        """Nothing is ever prepared."""

    def close(self) -> None:
        """Nothing to end."""


class TorchFeed:
    """torch's DataLoader; with workers, they stay alive between epochs."""

    note = ""

    def __init__(self, dataset: Any, batch: int, workers: int, collate: Any = None, whole: bool = False):
        from torch.utils.data import BatchSampler, DataLoader, RandomSampler

        settings: dict[str, Any] = {"batch_size": batch, "shuffle": True}
        if whole:  # the sampler gives lists of indices, and the dataset whole batches
            settings = {"batch_size": None, "sampler": BatchSampler(RandomSampler(dataset), batch, False)}
        self.loader = DataLoader(
            dataset, num_workers=workers, persistent_workers=workers > 0, collate_fn=collate, **settings
        )
        self.steps = len(self.loader)

    def epoch(self) -> Iterator[Any]:
        """Begin the next epoch."""
        return iter(self.loader)

    def jump(self) -> None:
        """torch prepares nothing before an epoch begins."""

    def close(self) -> None:
        """End the workers."""
        del self.loader
        gc.collect()


def torch_graphs(graphs: Any) -> dict[str, Any]:
    """A collate function for torch that makes the same batch as ours."""
    import torch

    from benchmarks.data import concat_graphs

    return {name: torch.from_numpy(array) for name, array in concat_graphs(graphs).items()}


class Accessor:
    """The dataset as BatchUp wants it: an array of indices in, a batch out."""

    def __init__(self, dataset: Any, make: MakeBatch):
        self.dataset, self.make = dataset, make

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, indices: Any) -> Any:
        return self.make(self.dataset, indices)


class BatchUpFeed:
    """BatchUp, inline or with a pool of threads or processes. Without `make`, the dataset is a plain array."""

    note = ""

    def __init__(self, dataset: Any, batch: int, make: MakeBatch | None, pool: str, workers: int, nbytes: int):
        from batchup import data_source, work_pool

        source = data_source.ArrayDataSource([dataset if make is None else Accessor(dataset, make)])
        self._pool: Any = None
        if pool != "inline":
            kinds = {"threads": work_pool.WorkerThreadPool, "processes": work_pool.WorkerProcessPool}
            self._pool = kinds[pool](processes=workers)
            ahead = int(np.clip(BUFFERED_BYTES // nbytes, 4, 20))  # 20 is its default
            source = self._pool.parallel_data_source(source, batch_buffer_size=ahead)
        self.source, self.batch = source, batch
        self.steps = -(-len(dataset) // batch)
        self._rng = np.random.RandomState(0)

    def epoch(self) -> Iterator[Any]:
        """Begin the next epoch."""
        batches: Iterator[Any] = self.source.batch_iterator(batch_size=self.batch, shuffle=self._rng)
        return batches

    def jump(self) -> None:
        """BatchUp prepares nothing before an epoch begins."""

    def close(self) -> None:
        """End the pool, which has no way of its own to be ended."""
        for name, part in vars(self._pool).items() if self._pool is not None else ():
            if name.endswith("__pool"):
                part.terminate()  # and no join(), which may wait for ever on a pool that was busy
            elif name.endswith("__manager"):
                part.shutdown()
