"""Collates: how a list of samples becomes a batch, one kind per file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from infeed.collate.collate import Collate, Heap, Memory, Mismatch
from infeed.collate.concat import Concat
from infeed.collate.function import Function
from infeed.collate.lists import List
from infeed.collate.pad import Pad
from infeed.collate.stack import Stack
from infeed.errors import PipelineError

__all__ = [
    "Collate",
    "Concat",
    "Function",
    "Heap",
    "List",
    "Memory",
    "Mismatch",
    "Pad",
    "Stack",
    "as_collate",
]

BY_NAME: dict[str, Collate] = {"stack": Stack(), "pad": Pad(), "concat": Concat(), "list": List()}


def as_collate(spec: str | Collate | Callable[[list[Any]], Any]) -> Collate:
    """The collate that a user means: by name, a `Collate`, or a function of a list of samples.

    >>> as_collate("stack"), as_collate(Pad(length=8)), as_collate(sum)
    (Stack(), Pad(length=8), Function(sum))
    """
    if isinstance(spec, Collate):
        return spec
    if isinstance(spec, str) and spec in BY_NAME:
        return BY_NAME[spec]
    if isinstance(spec, type) and issubclass(spec, Collate):
        raise PipelineError(f"collate={spec.__name__} is the class; give one of its kind: {spec.__name__}(...)")
    if callable(spec):
        return Function(spec)
    names = ", ".join(repr(name) for name in BY_NAME)
    raise PipelineError(
        f"collate={spec!r} is unknown; give one of {names}, a Collate such as Pad(length=128), "
        "or a function that takes a list of samples and returns the batch"
    )
