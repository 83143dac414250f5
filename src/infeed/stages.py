"""The stages of a pipeline that run the user's functions: maps, filters, and maps over whole batches."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from infeed.errors import PipelineError
from infeed.layout import Field, Layout
from infeed.trees import Tree

Fn = Callable[..., Any]


@dataclass(frozen=True)
class Stage:
    """A user's function in its place: what it is for, its name, and what it wants to be given.

    >>> Stage.of("map", lambda sample, rng: sample)
    map(<lambda>, rng)
    """

    kind: Literal["map", "filter", "map_batch"]
    fn: Fn
    name: str
    rng: bool = False
    out: Layout | None = None

    @staticmethod
    def of(kind: Literal["map", "filter", "map_batch"], fn: Fn, out: Any = None) -> Stage:
        """Look at the function's parameters; `PipelineError` where it cannot be called as a stage."""
        if not callable(fn):
            raise PipelineError(f".{kind}() takes a function, not {fn!r}")
        names = parameter_names(fn)
        if "out" in names and out is None:
            raise PipelineError(
                f"{function_name(fn)} takes `out`, so .{kind}(fn, out=...) must say what it writes, "
                "for instance out={'image': ((3, 224, 224), 'uint8')}"
            )
        if out is not None and "out" not in names:
            raise PipelineError(f"out= was given, but {function_name(fn)} has no parameter named `out`")
        _check_call(kind, fn, {"rng", "out"} & set(names))
        layout = None if out is None else layout_of_spec(out)
        return Stage(kind, fn, function_name(fn), "rng" in names, layout)

    def __repr__(self) -> str:
        extras = [self.name] + (["rng"] if self.rng else []) + ([f"out={self.out}"] if self.out else [])
        return f"{self.kind}({', '.join(extras)})"


def _check_call(kind: str, fn: Fn, keywords: set[str]) -> None:
    """`PipelineError` when `fn` cannot be called with one sample, or batch, and the keywords."""
    try:
        signature = inspect.signature(fn)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(None, **dict.fromkeys(keywords))
    except TypeError as error:
        what = "batch" if kind == "map_batch" else "sample"
        raise PipelineError(
            f"{function_name(fn)}{signature} cannot be called with one {what} ({error}); besides it, a function "
            "may have parameters named `rng` and `out`, and others only with defaults"
        ) from None


def parameter_names(fn: Fn) -> tuple[str, ...]:
    """Names of the parameters of `fn`; empty where Python cannot tell (some C functions).

    >>> parameter_names(lambda sample, rng: None)
    ('sample', 'rng')
    """
    try:
        return tuple(inspect.signature(fn).parameters)
    except (TypeError, ValueError):
        return ()


def function_name(fn: Fn) -> str:
    """A name for messages.

    >>> function_name(len)
    'len'
    """
    name = getattr(fn, "__name__", None) or getattr(getattr(fn, "func", None), "__name__", None)
    return str(name or type(fn).__name__)


def layout_of_spec(spec: Any) -> Layout:
    """The layout that `out=` declares: a tree of arrays to imitate or of `(shape, dtype)` pairs.

    >>> layout_of_spec({"x": ((3,), "float32"), "y": ((), int)})
    {x: float32[3], y: int64[]}
    """
    if _is_pair(spec):
        return Layout(Tree.of(0), (_field("", spec),))
    if isinstance(spec, dict):
        parts = {key: layout_of_spec(value) for key, value in spec.items()}
        tree = Tree("dict", tuple(parts), tuple(part.tree for part in parts.values()))
        fields = tuple(
            Field(name, field.dtype, field.shape)
            for name, field in zip(tree.names, (f for p in parts.values() for f in p.fields), strict=True)
        )
        return Layout(tree, fields)
    layout = Layout.of(spec)
    if layout.has_objects:
        raise PipelineError(f"out= takes arrays to imitate, or (shape, dtype) pairs, not {spec!r}")
    return layout


def _is_pair(spec: Any) -> bool:
    return isinstance(spec, tuple) and len(spec) == 2 and isinstance(spec[0], tuple)


def _field(name: str, spec: Any) -> Field:
    try:
        return Field(name, np.dtype(spec[1]), tuple(int(size) for size in spec[0]))
    except (TypeError, ValueError) as error:
        raise PipelineError(f"out= takes (shape, dtype) pairs; {spec!r} is none: {error}") from None
