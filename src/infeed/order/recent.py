"""A few recently computed values, kept without a lock."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

Value = TypeVar("Value")


class Recent(Generic[Value]):
    """The last `keep` values made, by key. It pickles, copies and compares as an empty one.

    There is no lock, because a lock held by another thread would stay locked for ever in a forked
    process. The entries are one tuple that is replaced whole: two threads that miss at the same time
    compute the same value twice, and nothing worse.

    >>> squares = Recent(keep=2)
    >>> squares.get(3, lambda: 3 * 3)
    9
    >>> squares.get(3, lambda: 1 / 0)
    9
    """

    def __init__(self, keep: int):
        self.keep = keep
        self._entries: tuple[tuple[Hashable, Value], ...] = ()

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value kept for `key`, or else the one `make` returns."""
        for known, value in self._entries:
            if known == key:
                return value
        made = make()
        self._entries = ((key, made), *self._entries)[: self.keep]
        return made

    def __reduce__(self) -> tuple[type[Recent[Value]], tuple[int]]:
        return type(self), (self.keep,)
