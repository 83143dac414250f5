"""The beginnings of a pipeline: where the samples come from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from infeed import sources
from infeed.pipeline import Pipeline, pipelines


def arrays(*positional: Any, **named: Any) -> Pipeline:
    """Arrays with one row per sample, gathered a whole batch at a time.

    Numpy arrays, memory maps, tensors, nested lists, and any object with `__len__` and a `__getitem__` that
    takes an array of indices. Named arrays give dict samples, several positional ones tuples, a single one
    its bare rows.

    >>> import numpy as np
    >>> arrays(x=np.arange(6).reshape(3, 2), y=[0, 1, 0])[1]
    {'x': array([2, 3]), 'y': np.int64(1)}
    """
    return Pipeline(sources.arrays(*positional, **named))


def source(data: Any) -> Pipeline:
    """Any object with `__len__` and `__getitem__` (and `__getitems__` when it has it): a dataset, a list.

    >>> source(["a", "b", "c"])[2]
    'c'
    """
    return Pipeline(sources.source(data))


def files(pattern: Any, read: Callable[[str], Any] | None = None) -> Pipeline:
    """Files by pattern, folder or list, and how to read one; by default a sample is the file's bytes.

    >>> len(files(__file__, read=len))
    1
    """
    return Pipeline(sources.files(pattern, read))


def iterable(factory: Any, shards: int | Sequence[str] | None = None) -> Pipeline:
    """Data that can only be read in order: a function that opens an iterator for each epoch.

    With `shards`, the function is called once for each, and the shards are read in parallel.

    >>> iterable(lambda: iter(range(10))).batch(4).scanned
    True
    """
    return Pipeline(sources.iterable(factory, shards))


def zip(*members: Any, **named: Any) -> Pipeline:
    """Samples of several sources side by side, as tuples or, when named, as dicts.

    >>> zip(a=[1, 2], b=["x", "y"])[1]
    {'a': 2, 'b': 'y'}
    """
    by_name = dict(zip_names(named))
    return Pipeline(sources.zip(*pipelines(members), **by_name))


def zip_names(named: dict[str, Any]) -> list[tuple[str, Any]]:
    """Named members as sources.

    >>> zip_names({})
    []
    """
    return list(map(lambda key, value: (key, value), named, pipelines(named.values())))


def concat(*members: Any) -> Pipeline:
    """Samples of several sources one after the other.

    >>> concat([1, 2], [3])[2]
    3
    """
    return Pipeline(sources.concat(*pipelines(members)))


def choose(members: Sequence[Any], weights: Sequence[float] | None = None, stop: str | int = "first") -> Pipeline:
    """Samples of several sources mixed in proportion to `weights`.

    An epoch ends when the first source runs out (`stop="first"`), when every one has been used up, shorter
    ones starting over (`"all"`), or after `stop` samples.

    >>> list(choose([[1, 2, 3, 4], [10, 20]], weights=[2, 1]))
    [1, 10, 2, 3, 20, 4]
    """
    return Pipeline(sources.choose(pipelines(members), weights, stop))  # type: ignore[arg-type]
