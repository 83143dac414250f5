"""What may stand where a source is expected."""

from __future__ import annotations

from typing import Any

import numpy as np

from infeed.errors import PipelineError
from infeed.sources.arrays import arrays
from infeed.sources.columns import is_tensor
from infeed.sources.items import source
from infeed.sources.iterables import IterableSource
from infeed.sources.source import Source


def as_source(data: Any) -> Source | IterableSource:
    """A source as it is, a pipeline's own source, an array's rows, or an object with `__len__` and
    `__getitem__`.

    >>> as_source([1, 2, 3])[0]
    1
    >>> as_source(np.zeros((3, 2)))
    <ArraysSource: 3 samples, float64[2]>
    """
    if isinstance(data, Source | IterableSource):
        return data
    if callable(getattr(data, "as_source", None)) and not isinstance(data, type):
        made = data.as_source()
        if not isinstance(made, Source | IterableSource):
            raise PipelineError(f"{type(data).__name__}.as_source() returned a {type(made).__name__}, not a source")
        return made
    if isinstance(data, np.ndarray) or is_tensor(data):
        return arrays(data)
    indexed = hasattr(data, "__len__") and hasattr(data, "__getitem__")
    if isinstance(data, dict | str | bytes) or not indexed:
        raise PipelineError(
            f"{type(data).__name__} is no source of samples; accepted are infeed's own sources and "
            "pipelines, arrays, and objects with __len__ and __getitem__ (a dict of arrays: "
            "arrays(**fields); data that can only be read in order: iterable(factory))"
        )
    return source(data)


def as_indexed(data: Any, who: str) -> Source:
    """The same for `who`, which needs samples by index and so refuses iterables.

    >>> as_indexed([1, 2, 3], "zip")
    <ItemsSource: 3 samples>
    """
    made = as_source(data)
    if isinstance(made, IterableSource):
        raise PipelineError(f"{who} needs samples by index, and {made!r} can only be read in order")
    return made
