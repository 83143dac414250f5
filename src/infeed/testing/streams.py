"""Checks of a whole stream: the same in every mode, every sample once, and resumed at every step."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from infeed.crews import Mode, Workers
from infeed.loader import Loader
from infeed.pipeline import Pipeline
from infeed.testing.comparing import difference
from infeed.testing.expecting import check_complete

Subject = Loader | Pipeline | Callable[..., Loader]
Epochs = list[list[Any]]
MODES: tuple[Mode, ...] = ("inline", "threads", "processes")
PATIENCE = 20


def check_stream(
    subject: Subject, *, modes: Sequence[Mode | Workers] = MODES, workers: int = 2, epochs: int = 2
) -> None:
    """`AssertionError` unless every mode gives the same bytes and every sample comes once.

    The subject is a pipeline, a loader, or a function that makes a loader and hands the keywords it is given
    on to it: `lambda **how: infeed.Loader(pipeline, prefetch=3, **how)`. A loader's own stream is looked at
    beside those of new loaders of its pipeline; its place is kept. `modes` may hold `Workers` of your own.
    What must come is worked out without the engine where that can be: for filters and everything with random
    access that has no function over whole batches. Of other streams only the modes are compared, and for
    iterables the number of samples.

    >>> import numpy as np, infeed
    >>> pipeline = infeed.arrays(x=np.arange(20)).shuffle(seed=7).batch(4)
    >>> check_stream(pipeline, modes=["inline", "threads"])
    """
    with ExitStack() as stack:
        crews = _workers(modes, workers, stack)
        make = _factory(subject)
        wanted, loader = _epochs(make, crews[0], epochs)
        check_complete(loader.pipeline, loader.recipe.on_error, wanted)
        for crew in crews[1:]:
            _check_equal(_epochs(make, crew, epochs)[0], wanted, f"{crew!r} and {crews[0]!r}")
        if isinstance(subject, Loader):
            _check_own(subject, list(itertools.chain(*wanted)), f"the loader itself and {crews[0]!r}")


def check_resume(
    subject: Subject, *, modes: Sequence[Mode | Workers] = MODES, workers: int = 2, epochs: int = 2
) -> None:
    """`AssertionError` unless a stream that is broken off after any step goes on in another mode.

    After every number of steps, from none to all, the state is taken from a loader in one mode and loaded in
    the next mode; after one more step once more, into the one after that, so that a resumed loader is resumed
    as well. The subject is the same as for `check_stream`; of a loader, only its pipeline and `on_error` matter.

    >>> import numpy as np, infeed
    >>> check_resume(infeed.arrays(x=np.arange(10)).shuffle(seed=7).batch(4), modes=["inline", "threads"])
    """
    with ExitStack() as stack:
        crews = _workers(modes, workers, stack)
        make = _factory(subject)
        by_epoch, _ = _epochs(make, crews[0], epochs + 1)  # one more, to go on into after the last step
        wanted = list(itertools.chain(*by_epoch))
        for done in range(len(wanted) - len(by_epoch[-1]) + 1):
            first, second, third = (crews[(done + turn) % len(crews)] for turn in range(3))
            what = f"resumed after step {done}: {first!r}, then {second!r}, then {third!r}"
            got, state = _part(make, first, None, done)
            more, state = _part(make, second, state, min(1, len(wanted) - done))
            rest, _ = _part(make, third, state, max(0, len(wanted) - done - 1))
            _check_batches([*got, *more, *rest], wanted, what)


def _factory(subject: Subject) -> Callable[..., Loader]:
    if isinstance(subject, Loader):
        return functools.partial(Loader, subject.pipeline, on_error=subject.recipe.on_error)  # type: ignore[arg-type]
    if isinstance(subject, Pipeline):
        return functools.partial(Loader, subject)
    return subject


def _workers(modes: Sequence[Mode | Workers], count: int, stack: ExitStack) -> list[Workers]:
    """The workers of every mode; ours are ended with the check, the caller's are not."""
    if not modes:
        raise ValueError("modes is empty: name at least one")
    return [mode if isinstance(mode, Workers) else stack.enter_context(Workers(count, mode)) for mode in modes]


def _epochs(make: Callable[..., Loader], crew: Workers, epochs: int) -> tuple[Epochs, Loader]:
    """Copies of all batches by epoch, and the closed loader they came from."""
    with make(workers=crew, epochs=1) as loader:
        return [[copy.deepcopy(batch) for batch in loader] for _ in range(epochs)], loader


def _part(make: Callable[..., Loader], crew: Workers, state: Any, count: int) -> tuple[list[Any], Any]:
    """The next `count` batches after a state, and the state after them."""
    with make(workers=crew, epochs=1) as loader:
        if state is not None:
            loader.load_state_dict(copy.deepcopy(state))
        batches = list(itertools.islice(_endless(loader), count))
        return batches, loader.state_dict()


def _endless(loader: Loader) -> Iterator[Any]:
    """Epoch after epoch. Some may be empty: after a filter, or when a state was taken before an end was seen."""
    empty = 0
    while empty < PATIENCE:
        empty += 1
        for batch in loader:
            empty = 0
            yield copy.deepcopy(batch)
    raise AssertionError(f"{PATIENCE} epochs in a row had no batch, though more were to come")


def _check_own(loader: Loader, wanted: list[Any], what: str) -> None:
    place = loader.state_dict()
    loader.set_epoch(0)
    try:
        _check_batches(list(itertools.islice(_endless(loader), len(wanted))), wanted, what)
    finally:
        loader.load_state_dict(place)


def _check_equal(got: Epochs, wanted: Epochs, what: str) -> None:
    for epoch, (mine, other) in enumerate(zip(got, wanted, strict=True)):
        _check_batches(mine, other, f"{what}, epoch {epoch}")


def _check_batches(got: list[Any], wanted: list[Any], what: str) -> None:
    for step, (mine, other) in enumerate(zip(got, wanted, strict=False)):
        found = difference(mine, other)
        if found:
            raise AssertionError(f"{what}: batch {step} is not the same: {found}")
    if len(got) != len(wanted):
        raise AssertionError(f"{what}: there are {len(got)} and {len(wanted)} batches")
