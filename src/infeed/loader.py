"""The loader: ties pipeline, order, slots and workers together; `for batch in loader`."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from infeed import automatic, evaluating, state
from infeed.crews import Mode, Workers, check_count, check_mode
from infeed.errors import PipelineError, Stalled, StateError
from infeed.filling import own
from infeed.pipeline import Pipeline, as_pipeline
from infeed.plan import Plan
from infeed.scanning import ScannedStream
from infeed.statistics import Statistics, Waiting
from infeed.stream import Settings, Stream
from infeed.tasks import Reply
from infeed.trees import tree_map

OnError = Literal["raise", "replace"]


class Loader:
    """Prepares the batches of a pipeline ahead of the loop that uses them.

    `workers` is a number (0: the loop does the work itself), `"auto"`, or a `Workers` shared with other loaders; `mode` says what
    they are: `"threads"`, `"processes"`, `"inline"` or `"auto"`. Neither changes a single bit of a batch. `prefetch` is how many
    batches are kept ready. Each `for` is one epoch, or `epochs` of them without a seam (`None`: endless). `start=True` begins to
    fill at once, before the loop. `on_error="replace"` puts another sample in the place of one that raises. `timeout` seconds
    without a batch raise an exception that shows what the workers are doing.

    >>> import numpy as np, infeed
    >>> pipeline = infeed.arrays(x=np.arange(10)).shuffle(seed=7).batch(4)
    >>> with infeed.Loader(pipeline, workers=2, mode="threads") as loader:
    ...     for batch in loader:
    ...         print(batch["x"])
    [8 1 2 6]
    [7 9 5 0]
    [4 3]
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
        self._epochs = epochs
        self._timeout = timeout
        self._thread_safe = thread_safe
        self._worker_setup = worker_setup
        self._start_method = start_method
        self._shared = isinstance(workers, Workers)
        self._workers: Workers | None = self._as_workers(workers, mode)
        self._chain = self.pipeline.chain()
        self._stream: Stream | ScannedStream | None = None
        self._closed = False
        self._iterator: LoaderIterator | None = None
        self._epoch = 0  # of the next `for`
        self._resume: tuple[int, int, int | None, Any] | None = None
        self._until: int | None = None
        self._received: tuple[int, int] | None = None
        self._cursor: Any = None
        self._warned = False
        self._waiting = Waiting()
        self.decision: str = "" if self._workers is None else f"{self._workers!r}, as asked for"
        self._finalizer = weakref.finalize(self, _close, self._holder())
        automatic.check_fits(self.recipe, self._settings.memory_limit)
        if self._workers is not None and self._workers.mode == "processes" and not self._shared:
            self._crew().check(self.recipe)  # type: ignore[attr-defined]
        if start:
            self.start()

    def _as_workers(self, workers: int | str | Workers, mode: Mode) -> Workers | None:
        """The workers asked for; None where it is to be found out by measuring."""
        check_mode(mode)
        if isinstance(workers, Workers):
            if mode not in ("auto", workers.mode):
                raise PipelineError(
                    f"these workers are {workers.mode}, so mode={mode!r} cannot be had from them"
                )
            return workers
        if workers == "auto":
            self._wanted_count: int | None = None
        else:
            check_count(workers)
            self._wanted_count = int(workers)
        if mode == "inline" or self._wanted_count == 0:
            return self._made(0, "inline")
        if mode != "auto" and self._wanted_count is not None:
            return self._made(self._wanted_count, mode)
        self._wanted_mode = mode
        return None

    def _made(self, count: int, mode: Mode) -> Workers:
        return Workers(count, mode, start_method=self._start_method, setup=self._worker_setup)

    # -- iterating

    def __iter__(self) -> LoaderIterator:
        """Begin an epoch; filling starts at once."""
        self._check_open()
        if self._iterator is not None:
            self._iterator.superseded = True
            if not self._iterator.finished and self._iterator.used:
                self._epoch = max(self._epoch, self._iterator.epoch + 1)
        begin, cursor = 0, None
        if self._resume is not None:
            epoch, begin, until, cursor = self._resume
            self._resume = None
        else:
            epoch = self._epoch
            until = None if self._epochs is None else epoch + self._epochs
        self._until = until
        self._prepare(epoch, begin, cursor)
        self._iterator = LoaderIterator(self, epoch, begin, until)
        return self._iterator

    def start(self) -> Loader:
        """Begin to fill now; the loop will find its first batches ready."""
        self._check_open()
        if self._resume is not None:
            epoch, begin, _, cursor = self._resume
            self._prepare(epoch, begin, cursor)
        else:
            self._prepare(self._epoch, 0, None)
        return self

    def _prepare(self, epoch: int, step: int, cursor: Any) -> None:
        """Have a stream that will give step `step` of `epoch` next."""
        adopted: Reply | None = None
        if self._stream is None:
            if self._workers is None:
                adopted = self._decide(epoch, step)
            self._stream = self._new_stream()
            fresh = True
        else:
            fresh = False
        with self._stream.crew.lock:  # type: ignore[attr-defined]
            if isinstance(self._stream, ScannedStream):
                if fresh or not self._stream.is_at(epoch, step, cursor):
                    self._stream.restart(epoch, step, cursor)
            elif fresh or self._stream.at != (epoch, step):
                self._stream.restart(epoch, step, adopted)

    def _decide(self, epoch: int, step: int) -> Reply | None:
        """Measure the first samples, and choose mode and number of workers by what they cost."""
        decision = automatic.decide(
            self.recipe, self._chain, epoch, step, self._wanted_mode, self._wanted_count, self._thread_safe
        )
        self.decision = decision.reason
        self._workers = self._made(decision.count, decision.mode)
        return decision.first

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
        """The next batch of the stream, waiting for it if need be."""
        stream = self._stream
        if stream is None:
            raise PipelineError("the loader is closed")
        lock = stream.crew.lock
        with lock:  # type: ignore[attr-defined]
            if not stream.ready():
                began = time.perf_counter()
                there = stream.crew.wait(stream.ready, self._timeout)
                self._waiting.add(time.perf_counter() - began)
                if not there:
                    raise Stalled(
                        f"no batch came within timeout={self._timeout} s; this is what the workers are doing:\n"
                        f"{stream.crew.stacks()}"
                    )
            batch = stream.next()
        if stream.copied and not self._warned:
            self._warned = True
            warnings.warn(
                "so many batches are being kept that the memory for slots is used up; from here on batches are copies. "
                "Keep fewer of them, or raise memory_limit",
                RuntimeWarning,
                stacklevel=3,
            )
        return batch

    # -- length and place

    def __len__(self) -> int:
        """Steps per epoch."""
        return len(self.pipeline)

    @property
    def epoch(self) -> int:
        """The epoch that is running, or that the next `for` begins with."""
        if self._iterator is not None and self._iterator.used and not self._iterator.finished:
            return self._iterator.epoch
        return self._resume[0] if self._resume else self._epoch

    def set_epoch(self, epoch: int) -> None:
        """The next `for` begins with this epoch."""
        if isinstance(epoch, bool) or not isinstance(epoch, int) or epoch < 0:
            raise PipelineError(f"set_epoch takes an epoch number, not {epoch!r}")
        self._epoch, self._resume = epoch, None
        if self._iterator is not None:
            self._iterator.finished = True

    # -- state

    def state_dict(self) -> dict[str, Any]:
        """Where the caller is: counts the batches received, not those prepared."""
        iterator = self._iterator
        if self._resume is not None and (iterator is None or iterator.finished or iterator.superseded):
            epoch, step, until, cursor = self._resume
        elif iterator is None or iterator.finished or not iterator.used:
            epoch, step, until, cursor = self.epoch, 0, None, None
            if iterator is not None and not iterator.finished:
                epoch, step, until = iterator.epoch, iterator.step, iterator.until
        else:
            epoch, step, until, cursor = iterator.epoch, iterator.step, iterator.until, self._cursor
        position = step * self.plan.samples_per_step
        return state.pack(self.pipeline, epoch, position, until, cursor)

    def load_state_dict(self, loaded: dict[str, Any]) -> None:
        """Go on where another loader of the same pipeline was, whatever its mode, workers and replicas."""
        state.check(loaded, self.pipeline)
        step, rest = divmod(int(loaded["position"]), self.plan.samples_per_step)
        if rest:
            raise StateError(
                f"the state is {loaded['position']} samples into its epoch, which is no whole number of steps of "
                f"{self.plan.samples_per_step} samples; use the same number of iterations"
            )
        epoch, until, cursor = int(loaded["epoch"]), loaded["until"], loaded["cursor"]
        ended = not self.recipe.scanned and step >= len(self)
        if ended or (cursor is not None and cursor.get("ended")):
            epoch, step, cursor = epoch + 1, 0, None
        if self._epochs is None:
            until = None
        elif until is None or epoch >= until:
            until = epoch + self._epochs
        self._resume = (epoch, step, until, cursor)
        self._epoch = epoch
        if self._iterator is not None:
            self._iterator.superseded = self._iterator.finished = True

    # -- looking and evaluating

    @property
    def bad_samples(self) -> list[evaluating.BadSample]:
        """The samples that were left out under `on_error="replace"`, with epoch and exception."""
        return [] if self._stream is None else evaluating.bad_samples(self._stream.bad_samples)

    def indices_at(self, epoch: int, step: int) -> NDArray[np.int64]:
        """The source's indices of the samples of a step, in the order of its rows."""
        return evaluating.indices_at(self, epoch, step)

    def batch_at(self, epoch: int, step: int) -> Any:
        """Any batch again, made here and now: for instance the one behind a NaN."""
        return evaluating.batch_at(self, epoch, step)

    def synthetic(self) -> Iterator[Any]:
        """As many batches of the same shapes as an epoch has, all of them one and the same that stays in memory."""
        return evaluating.synthetic(self)

    def collect(self, fn: Callable[[Any], Any], *, progress: bool | None = None) -> Any:
        """What `fn` returns for every batch of an epoch, put together along the first axis."""
        return evaluating.collect(self, fn, progress)

    def average(self, fn: Callable[[Any], Any], *, progress: bool | None = None) -> Any:
        """The mean over all samples of an epoch of what `fn(batch)` returns, each batch weighted by its size."""
        return evaluating.average(self, fn, progress)

    def stats(self) -> Statistics:
        """Counts and times since the loader was made."""
        return Statistics.of(self._waiting, self._stream, self._workers)

    # -- ending

    def _check_open(self) -> None:
        if self._closed:
            raise PipelineError("the loader is closed; make a new one")

    def _holder(self) -> dict[str, Any]:
        """What must be closed when the loader is forgotten; holds no reference to the loader itself."""
        self._kept: dict[str, Any] = {"loader": weakref.ref(self)}
        return self._kept

    def close(self) -> None:
        """End the workers, unless they are shared, and let go of the memory. Batches in hand stay valid."""
        if self._closed:
            return
        self._closed = True
        self._finalizer.detach()
        stream, self._stream = self._stream, None
        if stream is not None and (not self._shared or self._workers is None or self._workers.started):
            with stream.crew.lock:  # type: ignore[attr-defined]
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


class LoaderIterator:
    """One run over a loader. It survives an exception and goes on with the next batch."""

    def __init__(self, loader: Loader, epoch: int, step: int, until: int | None):
        self.loader = loader
        self.epoch = epoch
        self.step = step
        self.until = until
        self.used = step > 0
        self.finished = False
        self.superseded = False
        self._steps = None if loader.recipe.scanned else len(loader)
        self._thread = threading.get_ident()

    def __iter__(self) -> LoaderIterator:
        return self

    def __next__(self) -> Any:
        loader = self.loader
        if self.finished or self.superseded:
            if self.superseded and not self.finished:
                raise PipelineError("a newer iterator of this loader has taken over; use that one")
            raise StopIteration
        if self._steps is None:
            return self._scan()
        if self.step >= self._steps:
            self._next_epoch()
        self.step += 1
        self.used = True
        try:
            batch = loader._take()
        except Stalled:
            self.step -= 1
            raise
        loader._waiting.batches += 1
        if self.step == self._steps:
            loader._epoch = self.epoch + 1
        return batch

    def _next_epoch(self) -> None:
        if self.until is not None and self.epoch + 1 >= self.until:
            self.finished = True
            self.loader._epoch = self.epoch + 1
            raise StopIteration
        self.epoch, self.step = self.epoch + 1, 0

    def _scan(self) -> Any:
        """A scanned pipeline knows its end only when it comes to it."""
        loader = self.loader
        while True:
            taken = loader._take()
            self.used = True
            if taken.ended:
                self._next_epoch()
                loader._cursor = None
                continue
            self.step += 1
            loader._cursor = taken.cursor
            loader._waiting.batches += 1
            if taken.error is not None:
                raise taken.error
            return taken.batch


def _close(kept: dict[str, Any]) -> None:
    loader = kept["loader"]()
    if loader is not None:
        loader.close()


def _check_settings(
    prefetch: int | None, epochs: int | None, on_error: str, timeout: float | None, memory_limit: int | None
) -> None:
    if prefetch is not None and (isinstance(prefetch, bool) or not isinstance(prefetch, int) or prefetch < 1):
        raise PipelineError(
            f"prefetch={prefetch!r}: give a number of batches to keep ready, at least 1, or None"
        )
    if epochs is not None and (isinstance(epochs, bool) or not isinstance(epochs, int) or epochs < 1):
        raise PipelineError(
            f"epochs={epochs!r}: give the number of epochs of one `for`, or None for an endless one"
        )
    if on_error not in ("raise", "replace"):
        raise PipelineError(f"on_error={on_error!r} is unknown; use 'raise' or 'replace'")
    if timeout is not None and not timeout > 0:
        raise PipelineError(f"timeout={timeout!r}: give seconds, more than 0, or None to wait for ever")
    if memory_limit is not None and not memory_limit > 0:
        raise PipelineError(f"memory_limit={memory_limit!r}: give bytes, more than 0, or None")


def copy_of(batch: Any) -> Any:
    """A batch that does not look into a slot.

    >>> copy_of({"x": np.zeros(2)})
    {'x': array([0., 0.])}
    """
    return tree_map(own, batch)
