"""Choosing and renaming the fields of dict samples."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from infeed.errors import PipelineError
from infeed.sources import ArraysSource


@dataclass(frozen=True)
class Select:
    """Only some fields of a dict.

    >>> Select(("x",))({"x": 1, "y": 2})
    {'x': 1}
    """

    names: tuple[str, ...]

    def __call__(self, sample: Any) -> Any:
        _check(sample, self.names)
        return {name: sample[name] for name in self.names}

    def of_arrays(self, source: ArraysSource) -> ArraysSource:
        """The same on whole columns."""
        return source.select(self.names)


@dataclass(frozen=True)
class Rename:
    """Other names for some fields of a dict.

    >>> Rename((("x", "image"),))({"x": 1, "y": 2})
    {'image': 1, 'y': 2}
    """

    pairs: tuple[tuple[str, str], ...]

    def __call__(self, sample: Any) -> Any:
        names = dict(self.pairs)
        _check(sample, tuple(names))
        return {names.get(key, key): value for key, value in sample.items()}

    def of_arrays(self, source: ArraysSource) -> ArraysSource:
        """The same on whole columns."""
        return source.rename(dict(self.pairs))


def _check(sample: Any, names: tuple[str, ...]) -> None:
    if not isinstance(sample, dict):
        raise PipelineError(
            f"fields have names only in dict samples; this sample is of type {type(sample).__name__}"
        )
    missing = [name for name in names if name not in sample]
    if missing:
        raise PipelineError(f"the sample has no field {missing[0]!r}; its fields are {', '.join(map(str, sample))}")
