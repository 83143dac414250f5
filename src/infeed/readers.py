"""Reads one shard of an iterable source, and can go back to where another reader was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from infeed.errors import PipelineError
from infeed.sources import IterableSource


class ShardReader:
    """One open iterator and how many samples it has given."""

    def __init__(self, source: IterableSource, shard: str, epoch: int):
        self.shard = shard
        self.epoch = epoch
        self.count = 0
        self._iterator: Iterator[Any] = source.open(shard, epoch)

    def seek(self, count: int, state: Any = None) -> None:
        """Go to sample `count`: by the iterator's own state when it has one, else by reading again."""
        if state is not None and hasattr(self._iterator, "load_state_dict"):
            self._iterator.load_state_dict(state)
            self.count = count
            return
        skipped = sum(1 for _ in islice(self._iterator, count))
        if skipped != count:
            raise PipelineError(
                f"shard {self.shard!r} of the iterable gave {skipped} samples this time, {count} before: "
                "it must give the same samples each time it is opened for an epoch"
            )
        self.count = count

    def state(self) -> Any:
        """The iterator's own state, when it has one."""
        get = getattr(self._iterator, "state_dict", None)
        return None if get is None else get()

    def read(self, count: int) -> tuple[list[Any], bool]:
        """Up to `count` samples, and whether the shard has ended."""
        samples: list[Any] = []
        for sample in islice(self._iterator, count):
            samples.append(sample)
            self.count += 1
        return samples, len(samples) < count
