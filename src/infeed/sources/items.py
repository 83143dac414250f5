"""Samples from any object with `__len__` and `__getitem__`: a list, a torch dataset, the user's own."""

from __future__ import annotations

from typing import Any

import numpy as np

from infeed.errors import LayoutError, PipelineError
from infeed.sources.arrays import arrays
from infeed.sources.source import IntArray, Source
from infeed.sources.strings import Strings

# below this a list of strings is as small as its compact form
_MANY_STRINGS = 1000


class ItemsSource(Source):
    """What `source` makes: sample i is `items[i]`, asked for with a plain int.

    >>> ItemsSource(["a", "b", "c"])[-1]
    'c'
    """

    def __init__(self, items: Any):
        self.items = items
        self._length = len(items)
        self._has_getitems = callable(getattr(items, "__getitems__", None))

    def __len__(self) -> int:
        return self._length

    @property
    def asks_for_batches(self) -> bool:
        """Whether samples are fetched by `__getitems__`."""
        return self._has_getitems

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        if not self._has_getitems:
            return list(map(self.items.__getitem__, indices.tolist()))
        samples = self.items.__getitems__(indices.tolist())
        if isinstance(samples, dict | str | bytes) or not hasattr(samples, "__len__"):
            raise LayoutError(
                f"{_name(self.items)}.__getitems__ returned a {type(samples).__name__}; "
                "it must return a list with one sample for each index"
            )
        if len(samples) != len(indices):
            raise LayoutError(
                f"{_name(self.items)}.__getitems__ was asked for {len(indices)} samples and returned "
                f"{len(samples)}; it must return one for each index, in that order"
            )
        return samples if isinstance(samples, list) else list(samples)

    @property
    def thread_safe(self) -> bool:
        return type(self.items) in (list, tuple, range, Strings)

    @property
    def fields(self) -> str:
        if isinstance(self.items, Strings):
            return "str" if self.items.text else "bytes"
        return ""


def source(items: Any) -> Source:
    """Samples from an object with `__len__` and `__getitem__`; with `__getitems__`, many per call.

    Arrays go the way of `arrays`, and a long list of strings is kept in compact form (`Strings`).

    >>> class Squares:
    ...     def __len__(self):
    ...         return 10
    ...     def __getitem__(self, index):
    ...         return {"x": index * index}
    >>> source(Squares())[3]
    {'x': 9}
    """
    if isinstance(items, Source):
        return items
    if isinstance(items, np.ndarray):
        return arrays(items)
    if isinstance(items, dict | str | bytes):
        raise PipelineError(f"a {type(items).__name__} is no sequence of samples; pass a list, or arrays(**fields)")
    missing = [name for name in ("__len__", "__getitem__") if not hasattr(items, name)]
    if missing or _is_iterable_dataset(items):
        why = f"has no {' and no '.join(missing)}" if missing else "can only be iterated"
        raise PipelineError(
            f"{_name(items)} {why}; source needs samples by index: "
            "use infeed.iterable for data that can only be read in order"
        )
    return ItemsSource(_compact(items))


def _compact(items: Any) -> Any:
    if isinstance(items, list) and len(items) >= _MANY_STRINGS:
        kinds = set(map(type, items))
        if kinds == {str} or kinds == {bytes}:
            return Strings(items)
    return items


def _is_iterable_dataset(items: Any) -> bool:
    """Torch's IterableDataset inherits a `__getitem__` that only raises; known by name, without torch."""
    return any(base.__name__ == "IterableDataset" for base in type(items).__mro__)


def _name(items: Any) -> str:
    return type(items).__name__
