"""Counts: whole numbers that users give, checked in one place."""

from __future__ import annotations

from numbers import Integral
from typing import Any

from infeed.errors import PipelineError


def as_count(name: str, value: Any, least: int = 1) -> int:
    """`value` as a plain int; `PipelineError` when it is no whole number or less than `least`.

    >>> as_count("block", 1024)
    1024
    """
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise PipelineError(f"{name} is {value!r}. Give a whole number, {least} or more.")
    if value < least:
        raise PipelineError(f"{name} is {value}. Give {least} or more.")
    return int(value)
