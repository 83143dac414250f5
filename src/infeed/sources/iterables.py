"""Samples from data without random access: an iterator per epoch, in one shard or several."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from infeed.errors import PipelineError

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class IterableSource:
    """What `iterable` makes: no length, no index; `open(shard, epoch)` gives the samples in order.

    >>> numbers = IterableSource(lambda: range(3), ("0",))
    >>> list(numbers.open("0", epoch=0))
    [0, 1, 2]
    """

    thread_safe = False
    fields = ""

    def __init__(self, factory: Any, shards: tuple[str, ...], numbered: bool = True):
        self.factory = factory
        self.shards = shards
        self.numbered = numbered
        self.passes = _arguments(factory, given=len(shards) > 1 or not numbered)

    def open(self, shard: str, epoch: int) -> Iterator[Any]:
        """A fresh iterator over one shard, as this epoch wants it."""
        if shard not in self.shards:
            raise PipelineError(f"there is no shard {shard!r}; there are {', '.join(self.shards)}")
        if self.passes is None:
            return iter(self.factory)
        known = {"shard": int(shard) if self.numbered else shard, "epoch": epoch}
        positional = [known["shard"]] if "" in self.passes else []
        made = self.factory(*positional, **{name: known[name] for name in self.passes if name})
        if not isinstance(made, Iterable) and not hasattr(made, "__getitem__"):
            raise PipelineError(
                f"the factory of infeed.iterable returned a {type(made).__name__}, which cannot be iterated; "
                "it must return an iterator over samples, as a function with `yield` does"
            )
        return iter(made)

    def __repr__(self) -> str:
        name = getattr(self.factory, "__name__", type(self.factory).__name__)
        count = len(self.shards)
        return f"<IterableSource: {name}, {count} shard{'s' if count > 1 else ''}>"


def iterable(
    factory: Callable[..., Iterable[Any]] | Iterable[Any], shards: int | Sequence[str] | None = None
) -> IterableSource:
    """Samples from an iterator per epoch: `factory` is a function that returns one (a generator function, for
    instance), or an object that can be iterated again and again.

    Parameters of the function named `shard` and `epoch` are passed by name. With `shards`, names or a number
    of them, the data is read in that many parts side by side; the function gets the name (or, where only a
    number was given, the number 0, 1, ...) as `shard` or as its first parameter.

    >>> def lines(shard, epoch):
    ...     yield from (f"{shard} {epoch} {line}" for line in range(2))
    >>> source = iterable(lines, shards=["north", "south"])
    >>> list(source.open("south", epoch=5))
    ['south 5 0', 'south 5 1']
    """
    if isinstance(factory, str | bytes):
        raise PipelineError("iterable was given a single string; it takes a function that returns an iterator")
    if isinstance(factory, Iterator):
        raise PipelineError(
            f"iterable was given {type(factory).__name__}, which is used up after one epoch; "
            "pass the function that makes it, without calling it"
        )
    if not callable(factory) and not isinstance(factory, Iterable):
        raise PipelineError(
            f"iterable takes a function that returns an iterator, or an object that can be iterated, "
            f"and was given {type(factory).__name__}"
        )
    return IterableSource(factory, _shard_names(shards), shards is None or isinstance(shards, int))


def _shard_names(shards: int | Sequence[str] | None) -> tuple[str, ...]:
    if shards is None:
        return ("0",)
    if isinstance(shards, bool | str | bytes):
        raise PipelineError(f"shards must be a number or a list of names, and is {shards!r}")
    if isinstance(shards, int):
        if shards < 1:
            raise PipelineError(f"shards must be at least 1, and is {shards}")
        return tuple(map(str, range(shards)))
    names = tuple(shards)
    if not names or not all(isinstance(name, str) for name in names):
        raise PipelineError(f"shards must be names, at least one, and are {list(names)!r}")
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise PipelineError(f"shard {twice!r} is named twice; its samples would come twice")
    return names


def _arguments(factory: Any, given: bool) -> tuple[str, ...] | None:
    """What to pass: names of parameters, "" for the shard as first argument; None: iterate the object itself.

    `given` says that shards were asked for, so that the factory has to take one.
    """
    if hasattr(factory, "__iter__") and not isinstance(factory, type):
        if given:
            raise PipelineError("an object that is iterated as a whole has no shards; pass a function of `shard`")
        return None
    try:
        parameters = list(inspect.signature(factory).parameters.values())
    except ValueError:  # some builtins do not tell
        return ("",) if given else ()
    passes = [p.name for p in parameters if p.name in ("shard", "epoch") and p.kind in _BY_NAME]
    others = [p for p in parameters if p.name not in passes]
    if given and "shard" not in passes:
        takes_first = bool(parameters) and parameters[0].name not in passes
        kinds = (*_BY_POSITION, inspect.Parameter.VAR_POSITIONAL)
        if not takes_first or parameters[0].kind not in kinds:
            raise PipelineError(
                f"shards were given, but {_name(factory)} takes no shard; give it a parameter named `shard`"
            )
        passes, others = ["", *passes], others[1:]
    required = [p.name for p in others if p.default is p.empty and p.kind in (*_BY_NAME, *_BY_POSITION)]
    if required:
        raise PipelineError(
            f"{_name(factory)} needs an argument {required[0]!r} that nobody gives it; only `shard` and "
            "`epoch` are passed: bind the others with functools.partial"
        )
    return tuple(passes)


def _name(factory: Any) -> str:
    return getattr(factory, "__name__", type(factory).__name__)
