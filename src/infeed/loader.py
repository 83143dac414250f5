"""The loader: ties pipeline, order, slots and workers together; `for batch in loader`."""

from __future__ import annotations

import os
import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infeed import automatic, evaluating, state
from infeed.crews import Mode, Workers, check_count, check_mode, check_start
from infeed.errors import PipelineError, Stalled, StateError
from infeed.filling import Delivery
from infeed.pipeline import Pipeline, as_pipeline
from infeed.plan import Plan
from infeed.scanning import ScannedStream
from infeed.statistics import Statistics, Waiting
from infeed.stream import Stream
from infeed.streaming import Settings
from infeed.tasks import Reply

OnError = Literal["raise", "replace"]


class Loader:
    """Prepares the batches of a pipeline ahead of the loop that uses them.

    `workers` is a number (0: the loop does the work itself), `"auto"`, or a `Workers` shared with other
    loaders; `mode` says what they are: `"threads"`, `"processes"`, `"inline"` or `"auto"`. Neither changes
    a single bit of a batch. `prefetch` is how many batches are kept ready. Each `for` is one epoch, or
    `epochs` of them without a seam (`None`: endless). `start=True` begins to fill at once, before the loop.
    `on_error="replace"` puts another sample in the place of one that raises; `bad_samples` lists them.
    `timeout` seconds without a batch raise an exception that shows what the workers are doing.
    `in_order=False` gives batches as they become ready. `memory_limit` is how many bytes the batches that
    are prepared or still in use may take (`None`: a third of the free memory).

    `worker_setup(number)` is called once in every worker, before its first sample. `start_method` is how
    processes begin: `"forkserver"` (the default), `"fork"` or `"spawn"`. `thread_safe=True` says that your
    functions may run in several threads at once, so that `mode="auto"` may choose threads for them.

    `decision` says which mode and how many workers were chosen, and why.

    >>> import numpy as np, infeed
    >>> pipeline = infeed.arrays(x=np.arange(10)).shuffle(seed=7).batch(4)
    >>> with infeed.Loader(pipeline, workers=2, mode="threads") as loader:
    ...     for batch in loader:
    ...         print(batch["x"])
    [1 4 6 8]
    [7 2 3 0]
    [5 9]
    """

    def __init__(
        self,
        pipeline: Pipeline | Any,
        *,
        workers: int | Literal["auto"] | Workers = "auto",
        mode: Mode = "auto",
        prefetch: int | None = None,
        epochs: int | None = 1,
        start: bool = False,
        in_order: bool = True,
        on_error: OnError = "raise",
        timeout: float | None = None,
        memory_limit: int | None = None,
        worker_setup: Callable[[int], Any] | None = None,
        start_method: str | None = None,
        thread_safe: bool = False,
    ):
        self.pipeline = as_pipeline(pipeline)
        _check_settings(prefetch, epochs, on_error, timeout, memory_limit)
        self.recipe = self.pipeline.recipe(on_error)
        self.plan: Plan = self.recipe.plan
        self._settings = Settings(prefetch, memory_limit, in_order)
        self._epochs = None if epochs is None else int(epochs)
        self._timeout = timeout
        self._tentative = False
        check_start(start_method, worker_setup)
        self._worker_setup = worker_setup
        self._start_method = start_method
        self._shared = isinstance(workers, Workers)
        self._workers: Workers | None = self._as_workers(workers, mode, thread_safe)
        self._chain = self.pipeline.chain()
        self._stream: Stream | ScannedStream | None = None
        self._closed = False
        self._final: Statistics | None = None
        self._owner = os.getpid()
        self._epoch = 0  # of the next `for`
        self._place: Place | None = None  # of the last `for`
        self._resume: Place | None = None  # where a loaded state says to go on
        self._warned = False
        self._waiting = Waiting()
        self.decision: str = "" if self._workers is None else f"{self._workers.described}, as asked for"
        self._finalizer = weakref.finalize(self, _close, weakref.ref(self))  # runs at exit, if not before
        automatic.check_fits(self.recipe, self._settings.memory_limit)
        if self._workers is not None and self._workers.mode == "processes" and not self._shared:
            self._crew().check(self.recipe)
        if start:
            self.start()

    def _as_workers(self, workers: int | str | Workers, mode: Mode, thread_safe: bool) -> Workers | None:
        """The workers asked for; None where it is to be found out by measuring."""
        check_mode(mode)
        if isinstance(workers, Workers):
            if mode not in ("auto", workers.mode):
                raise PipelineError(f"these workers are {workers.mode}, so mode={mode!r} cannot be had from them")
            return workers
        count = None
        if workers != "auto":
            check_count(workers)
            count = int(workers)
        if mode == "inline" or count == 0:
            return self._made(0, "inline")
        if mode != "auto" and count is not None:
            return self._made(count, mode)
        self._wishes = automatic.Wishes(mode, count, thread_safe)
        return None

    def _made(self, count: int, mode: Mode) -> Workers:
        return Workers(count, mode, start_method=self._start_method, worker_setup=self._worker_setup)

    # -- iterating

    def __iter__(self) -> LoaderIterator:
        """Begin an epoch; filling starts at once."""
        self._check_open()
        old = self._place
        if old is not None:
            old.superseded = True
            if old.used and not old.finished:
                self._epoch = max(self._epoch, old.epoch + 1)
        if self._resume is not None:
            place, self._resume = self._resume, None
        else:
            until = None if self._epochs is None else self._epoch + self._epochs
            place = Place(self._epoch, 0, until)
        self._prepare(place)
        self._place = place
        return LoaderIterator(self, place)

    def start(self) -> Loader:
        """Begin to fill now; the loop will find its first batches ready."""
        self._check_open()
        self._prepare(self._resume or Place(self._epoch, 0, None))
        return self

    def _prepare(self, place: Place) -> None:
        """Have a stream whose next batch is that of `place`."""
        epoch, step, cursor = place.epoch, place.step, place.cursor
        adopted: Reply | None = None
        fresh = self._stream is None
        if self._stream is None:
            if self._workers is None:
                adopted = self._decide(epoch, step)
            self._stream = self._new_stream()
        with self._stream.crew.lock:
            if isinstance(self._stream, ScannedStream):
                if fresh or not self._stream.is_at(epoch, step, cursor):
                    self._stream.restart(epoch, step, cursor)
            elif fresh or self._stream.at != (epoch, step):
                self._stream.restart(epoch, step, adopted)

    def _decide(self, epoch: int, step: int) -> Reply | None:
        """Measure the first samples, and choose mode and number of workers by what they cost."""
        decision = automatic.decide(self.recipe, self._chain, epoch, step, self._wishes)
        self.decision, self._tentative = decision.reason, decision.tentative
        self._workers = self._made(decision.count, decision.mode)
        return decision.first

    def _settle(self, place: Place) -> None:
        """After a few steps inline their cost is known: stay, or go on with workers."""
        stream = self._stream
        assert isinstance(stream, Stream)
        decision = automatic.settle(self.recipe, stream.counters, stream.step_bytes, self._wishes)
        if decision is None:
            return
        self.decision, self._tentative = decision.reason, False
        if decision.mode != "inline":
            with stream.crew.lock:
                stream.close()
            self._workers, self._stream = self._made(decision.count, decision.mode), None
            self._prepare(place)

    def _crew(self) -> Any:
        assert self._workers is not None
        return self._workers.crew()

    def _new_stream(self) -> Stream | ScannedStream:
        crew = self._crew()
        with crew.lock:
            if self.recipe.scanned:
                return ScannedStream(crew, self.recipe, self._chain, self._settings)
            return Stream(crew, self.recipe, self._chain, self._settings)

    def _take(self) -> Any:
        """What comes next in the stream, waiting for it if need be."""
        stream = self._stream
        if stream is None:
            raise PipelineError("the loader is closed")
        with stream.crew.lock:
            if not stream.ready():
                stream.schedule()  # slots may have come free since
            if not stream.ready():
                began = time.perf_counter()
                there = stream.crew.wait(stream.ready, self._timeout)
                self._waiting.add(time.perf_counter() - began)
                if not there:
                    raise Stalled(
                        f"no batch came within timeout={self._timeout} s; what the workers are doing:\n"
                        f"{stream.crew.stacks()}"
                    )
            taken = stream.next()
            self._waiting.batches += taken.left
        if stream.copied and not self._warned:
            self._warned = True
            warnings.warn(
                "the batches that are still in use fill the memory for slots; from here on batches are copies. "
                "Keep fewer of them, or raise memory_limit",
                RuntimeWarning,
                stacklevel=3,
            )
        return taken

    # -- length and place

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self.pipeline)

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next `for` begins with."""
        return self._where().epoch

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins with this epoch."""
        _check_number(epoch, 0, "set_epoch takes the number of an epoch")
        self._epoch, self._resume = int(epoch), None
        if self._place is not None:
            self._place.finished = True

    def _where(self) -> Place:
        """Where the caller is: in a running `for`, or before the next."""
        if self._resume is not None:
            return self._resume
        if self._place is not None and self._place.used and not self._place.finished:
            return self._place
        return Place(self._epoch, 0, None)

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Where the caller is: counts the batches received, not those prepared."""
        place = self._where()
        if place.step and not self._settings.in_order:
            raise StateError(
                "with in_order=False the batches received are no beginning of the epoch, so there is no "
                "place to come back to; take the state between epochs, or use in_order=True"
            )
        position = place.step * self.plan.samples_per_step
        return state.pack(self.pipeline, place.epoch, position, place.until, place.cursor)

    def load_state_dict(self, loaded: dict[str, Any]) -> None:
        """Go on where another loader of the same pipeline was, whatever its mode, workers and replicas."""
        state.check(loaded, self.pipeline)
        step, rest = divmod(int(loaded["position"]), self.plan.samples_per_step)
        if rest:
            raise StateError(
                f"the state is {loaded['position']} samples into its epoch, which is no whole number of "
                f"steps of {self.plan.samples_per_step} samples; use the same number of iterations"
            )
        place = Place(int(loaded["epoch"]), step, loaded["until"], loaded["cursor"])
        if not self.recipe.scanned and step >= len(self):
            place = Place(place.epoch + 1, 0, place.until)
        if self._epochs is None:
            place.until = None
        elif place.until is None or place.epoch >= place.until:
            place.until = place.epoch + self._epochs
        if self._place is not None:
            self._place.superseded = self._place.finished = True
        place.resumed = self.recipe.scanned and place.step > 0
        self._resume, self._epoch = place, place.epoch

    # -- looking and evaluating

    @property
    def bad_samples(self) -> list[evaluating.BadSample]:
        """The samples that were left out under `on_error="replace"`, with epoch and exception."""
        return evaluating.bad_samples(self, self._stream.bad_samples if self._stream else [], self._where())

    def indices_at(self, epoch: int, step: int) -> NDArray[np.int64]:
        """The source's indices of the samples of a step, in the order of its rows."""
        return evaluating.indices_at(self, epoch, step)

    def batch_at(self, epoch: int, step: int) -> Any:
        """Any batch again, made here and now: for instance the one behind a NaN."""
        return evaluating.batch_at(self, epoch, step)

    def synthetic(self) -> Iterator[Any]:
        """As many batches as an epoch has, all of them one and the same that stays in memory."""
        return evaluating.synthetic(self)

    def collect(self, fn: Callable[[Any], Any], *, progress: bool | None = None) -> Any:
        """What `fn` returns for every batch of an epoch, put together along the first axis."""
        return evaluating.collect(self, fn, progress)

    def average(self, fn: Callable[[Any], Any], *, progress: bool | None = None) -> Any:
        """The mean over all samples of an epoch, when `fn(batch)` returns the batch's mean: a number, an array,
        or several in a dict or tuple. Each batch is weighted by its size.
        """
        return evaluating.average(self, fn, progress)

    def stats(self) -> Statistics:
        """Counts and times since the loader was made."""
        if self._final is not None:
            return self._final
        if self._stream is None:
            return Statistics.of(self._waiting, None, self._workers)
        with self._stream.crew.lock:
            return Statistics.of(self._waiting, self._stream, self._workers)

    # -- ending

    def _check_open(self) -> None:
        if self._closed:
            raise PipelineError("the loader is closed; make a new one")

    def close(self) -> None:
        """End the workers, unless they are shared, and let go of the memory. Batches in hand stay valid."""
        if self._closed:
            return
        self._closed = True
        if self._owner != os.getpid():
            return  # a fork of the process that made it has no say over its workers
        self._finalizer.detach()
        if self._place is not None:
            self._place.superseded = True  # its iterator gives no more, not even what is left of a slot in hand
        self._final = self.stats()
        stream, self._stream = self._stream, None
        if stream is not None:
            with stream.crew.lock:
                stream.close()
        if self._workers is not None and not self._shared:
            self._workers.close()

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def __repr__(self) -> str:
        return f"Loader({self.decision or 'auto'})\n{self.pipeline!r}"


@dataclass
class Place:
    """Where a run over the loader is: `step` batches of `epoch` were received; it ends before `until`."""

    epoch: int
    step: int
    until: int | None
    cursor: Any = None
    used: bool = False
    finished: bool = False
    superseded: bool = False
    resumed: bool = False


class LoaderIterator:
    """One run over a loader. It survives an exception and goes on with the next batch.

    Threads may share it: each batch goes to one of them.
    """

    __slots__ = ("_delivery", "_loader", "_place", "_steps", "_turn")

    def __init__(self, loader: Loader, place: Place):
        self._loader = loader
        self._place = place
        self._steps = None if loader.recipe.scanned else len(loader)
        self._delivery: Delivery | None = None
        self._turn = threading.RLock()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        with self._turn:
            place, delivery = self._place, self._delivery
            if delivery is not None and not place.superseded:
                # Several small steps share a slot that is ours already: nothing to look up, nobody to ask.
                place.step += 1
                if delivery.left == 1:
                    self._delivery = None
                return delivery.next()
            return self._from_the_stream(place)

    def _from_the_stream(self, place: Place) -> Any:
        if place.finished:
            raise StopIteration
        if place.superseded:
            self._loader._check_open()
            raise PipelineError("a newer iterator of this loader has taken over; use that one")
        if self._steps is None:
            return self._scan()
        if place.step >= self._steps:
            self._next_epoch()
        place.used = True
        if self._loader._tentative:
            self._loader._settle(place)
        delivery = self._loader._take()
        place.step += 1
        if delivery.left > 1:
            self._delivery = delivery
        return delivery.next()

    def _next_epoch(self) -> None:
        place, epochs = self._place, self._loader._epochs
        if place.resumed and epochs is not None and place.until is not None:
            place.until = max(place.until, place.epoch + 1 + epochs)  # the state was that of an epoch's end
        place.resumed = False
        if place.until is not None and place.epoch + 1 >= place.until:
            place.finished = True
            self._loader._epoch = place.epoch + 1
            raise StopIteration
        place.epoch, place.step, place.cursor = place.epoch + 1, 0, None

    def _scan(self) -> Any:
        """A scanned pipeline knows its end only when it comes to it."""
        place = self._place
        while True:
            taken = self._loader._take()
            place.used = True
            if taken.ended:
                self._next_epoch()
                continue
            place.resumed = False
            place.step += 1
            place.cursor = taken.cursor
            if taken.error is not None:
                raise taken.error
            return taken.batch


def _close(reference: weakref.ref[Loader]) -> None:
    loader = reference()
    if loader is not None:
        loader.close()


def _check_settings(
    prefetch: int | None, epochs: int | None, on_error: str, timeout: float | None, memory_limit: int | None
) -> None:
    if prefetch is not None:
        _check_number(prefetch, 1, "prefetch is a number of batches to keep ready, at least 1, or None")
    if epochs is not None:
        _check_number(epochs, 1, "epochs is the number of epochs of one `for`, or None for an endless one")
    if on_error not in ("raise", "replace"):
        raise PipelineError(f"on_error={on_error!r} is unknown; use 'raise' or 'replace'")
    if timeout is not None and not _is_positive(timeout):
        raise PipelineError(f"timeout={timeout!r}: give seconds, more than 0, or None to wait for ever")
    if memory_limit is not None:
        _check_number(memory_limit, 1, "memory_limit is a number of bytes, or None")


def _check_number(value: Any, least: int, rule: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        raise PipelineError(f"{rule}; {value!r} was given")


def _is_positive(value: Any) -> bool:
    return isinstance(value, int | float) and value > 0
