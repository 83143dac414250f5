"""infeed as a contestant."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import infeed


class InfeedFeed:
    """A loader of ours; `jump` makes it begin at an epoch for which nothing has been prepared."""

    def __init__(self, pipeline: Any, **settings: Any):
        self.loader = infeed.Loader(pipeline, **settings)
        self.steps = len(self.loader)

    def epoch(self) -> Iterator[Any]:
        """Begin the next epoch."""
        return iter(self.loader)

    def jump(self) -> None:
        """Let the next epoch be one that the workers have not begun to fill."""
        self.loader.set_epoch(self.loader.epoch + 7)

    @property
    def note(self) -> str:
        """What was chosen, and why."""
        return self.loader.decision

    @property
    def slot_bytes(self) -> int:
        """The memory its slots take."""
        return self.loader.stats().slot_bytes

    def close(self) -> None:
        """End the workers."""
        self.loader.close()
