"""Reads one shard of an iterable source, and can go back to where another reader was."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any

from infeed.errors import PipelineError
from infeed.samples import USERS_FAULT
from infeed.sources import IterableSource


class ShardReader:
    """One open iterator and how many samples it has given; `asked` is how many it was asked for."""

    def __init__(self, source: IterableSource, shard: str, epoch: int):
        self.shard = shard
        self.epoch = epoch
        self.count = self.asked = 0
        self._failed: BaseException | None = None
        self._iterator: Iterator[Any] = source.open(shard, epoch)

    def seek(self, count: int, state: Any = None) -> None:
        """Go to sample `count`: by the iterator's own state when it has one, else by reading again."""
        if state is not None and hasattr(self._iterator, "load_state_dict"):
            self._iterator.load_state_dict(state)
            self.count = self.asked = count
            return
        skipped = sum(1 for _ in islice(self._iterator, count))
        if skipped != count:
            raise PipelineError(
                f"shard {self.shard!r} of the iterable gave {skipped} samples this time, {count} before: "
                "it must give the same samples each time it is opened for an epoch"
            )
        self.count = self.asked = count

    def state(self) -> Any:
        """The iterator's own state, when it has one."""
        get = getattr(self._iterator, "state_dict", None)
        return None if get is None else get()

    def read(self, count: int) -> tuple[list[Any], bool]:
        """Up to `count` samples, and whether the shard has ended.

        An exception waits for the next call when there are samples before it: these are not to be lost.
        """
        if self._failed is not None:
            raise self._failed
        samples: list[Any] = []
        self.asked += count
        try:
            for sample in islice(self._iterator, count):
                samples.append(sample)
                self.count += 1
        except USERS_FAULT as error:
            if not samples:
                raise
            self._failed = error
            return samples, False
        return samples, len(samples) < count
