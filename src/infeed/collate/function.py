"""Function: a collate of the user's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from infeed.collate.collate import Collate, Memory
from infeed.errors import PipelineError


@dataclass(frozen=True, repr=False)
class Function(Collate):
    """`fn(samples) -> batch`, whatever a batch is to the user.

    >>> from infeed.collate import Heap
    >>> Function(sum)([1, 2, 3], Heap())
    6
    >>> Function(sum)
    Function(sum)
    """

    fn: Callable[[list[Any]], Any]

    def __post_init__(self) -> None:
        if not callable(self.fn):
            raise PipelineError(f"a collate function must be callable with a list of samples; got {self.fn!r}")

    def __call__(self, samples: list[Any], memory: Memory) -> Any:
        """What the function returns; exceptions pass through as they are."""
        return self.fn(samples)

    def __repr__(self) -> str:
        name = getattr(self.fn, "__qualname__", None) or type(self.fn).__qualname__
        return f"Function({name})"
