"""What every kind of workers must keep to, as a class of tests to subclass."""

from __future__ import annotations

import copy
import itertools
import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import numpy as np

from infeed.api import arrays, iterable
from infeed.api import source as samples_of
from infeed.crews import Workers
from infeed.layout import Layout
from infeed.loader import Loader
from infeed.pipeline import Pipeline
from infeed.plan import Plan
from infeed.recipe import Recipe, index_view, row_views, slot_bytes
from infeed.slots import Arena, Slot
from infeed.tasks import Reply, Task
from infeed.testing.comparing import difference
from infeed.testing.streams import check_resume, check_stream
from infeed.workers import Crew

ROWS = 48


class WorkersContract:
    """Subclass it with a `make_workers`, name the class `Test...`, and pytest runs the contract on your workers.

    `make_workers` returns `infeed.Workers`; a new kind is a subclass of it whose `make` returns a `Crew`. It
    is called for every test, and what it made is closed after it.

    >>> import infeed
    >>> class TestTwoThreads(WorkersContract):
    ...     def make_workers(self):
    ...         return infeed.Workers(2, mode="threads")
    >>> TestTwoThreads().test_every_task_is_answered_once()
    """

    def make_workers(self) -> Workers:
        """New workers, not started yet."""
        raise NotImplementedError(f"{type(self).__name__} must define make_workers()")

    # -- the protocol between a loader and its crew

    def test_every_task_is_answered_once(self) -> None:
        with self._workers() as workers, _Job(workers.crew()) as job:
            job.submit(12)
            job.wait(12)
            assert job.answered() == list(range(12)), f"tasks 0 to 11 were answered as {job.answered()}"
            assert job.rows().tolist() == (10 * np.arange(ROWS)).tolist(), "the rows hold something else"

    def test_replies_come_with_the_lock_held(self) -> None:
        with self._workers() as workers, _Job(workers.crew()) as job:
            job.submit(4)
            job.wait(4)
            assert all(job.locked), "a reply was brought without the crew's lock"

    def test_a_cancelled_task_is_never_answered(self) -> None:
        with self._workers() as workers, _Job(workers.crew()) as job:
            job.submit(12)
            with job.crew.lock:
                cancelled = [task.id for task in job.crew.cancel(job)]
            job.wait(12 - len(cancelled))
            both = sorted([*job.answered(), *cancelled])
            assert both == list(range(12)), f"{job.answered()} were answered and {cancelled} cancelled, of 0 to 11"

    def test_a_crew_says_what_it_is(self) -> None:
        with self._workers() as workers:
            crew = workers.crew()
            assert crew is workers.crew(), "crew() made other workers at its second call"
            assert crew.size == workers.count, f"{workers.count} workers were asked for, {crew.size} are there"
            assert isinstance(crew.stacks(), str), "stacks() must give text"
            assert all(isinstance(pid, int) for pid in crew.pids()), "pids() must give numbers"

    # -- the stream

    def test_rows_are_the_same_as_inline(self) -> None:
        self._check(_numbers().batch(7))

    def test_random_maps_are_the_same_as_inline(self) -> None:
        self._check(_numbers().map(jitter).batch(7).map_batch(scale))

    def test_samples_of_different_sizes_are_the_same_as_inline(self) -> None:
        ragged = samples_of([{"x": np.arange(size % 9), "name": str(size)} for size in range(60)])
        arrays_only = ragged.select("x").shuffle(seed=7)
        self._check(
            ragged.shuffle(seed=7).batch(7, collate="list"),
            arrays_only.batch(7, collate="pad"),
            arrays_only.batch(7, collate="concat"),
        )

    def test_whole_steps_of_a_plan_are_the_same_as_inline(self) -> None:
        plan = Plan(2, accumulate=2, replicas=2, iterations=3)
        self._check(_numbers().map(jitter).batch(plan), _numbers().batch(plan, collate="list"))

    def test_filtered_samples_are_the_same_as_inline(self) -> None:
        self._check(_numbers().map(jitter).filter(is_wanted).map(jitter).batch(4))

    def test_iterables_are_the_same_as_inline(self) -> None:
        self._check(iterable(count_up, shards=3).batch(8))

    def test_a_stream_goes_on_here_and_elsewhere(self) -> None:
        with self._workers() as workers:
            check_resume(_numbers().take(20).map(jitter).batch(3), modes=[workers, "inline"])
            check_resume(_numbers().map(jitter).filter(is_wanted).batch(8), modes=["inline", workers])

    def test_broken_off_epochs_do_not_disturb_the_next(self) -> None:
        pipeline = _numbers().map(jitter).batch(7)
        with self._workers() as workers, Loader(pipeline, workers=workers) as loader:
            for epoch in range(3):
                for step, batch in enumerate(loader):
                    _check_same(batch, loader.batch_at(epoch, step), f"epoch {epoch}, step {step}")
                    if step == epoch:
                        break

    def test_a_batch_in_hand_never_changes(self) -> None:
        with self._workers() as workers, Loader(_numbers().batch(7), workers=workers, epochs=4) as loader:
            held = [(batch, copy.deepcopy(batch)) for batch in loader]
        for number, (batch, as_it_came) in enumerate(held):
            _check_same(batch, as_it_came, f"batch {number}, kept")

    # -- sharing and ending

    def test_loaders_share_the_workers(self) -> None:
        first, second = _numbers().map(jitter).batch(7), _numbers().take(30).map(jitter).batch(3)
        with (
            self._workers() as workers,
            Loader(first, workers=workers) as training,
            Loader(second, workers=workers) as validation,
        ):
            both = enumerate(zip(training, validation, strict=False))
            for step, (mine, other) in both:
                _check_same(mine, training.batch_at(0, step), f"step {step} of the first loader")
                _check_same(other, validation.batch_at(0, step), f"step {step} of the second loader")

    def test_a_closed_loader_leaves_the_workers_to_others(self) -> None:
        with self._workers() as workers:
            with Loader(_numbers().map(jitter).batch(7), workers=workers) as loader:
                kept = next(iter(loader))
                as_it_came = copy.deepcopy(kept)
            check_stream(_numbers().batch(5), modes=[workers, "inline"], epochs=1)
            _check_same(kept, as_it_came, "a batch of the closed loader")

    def test_closing_ends_every_worker_and_may_be_done_twice(self) -> None:
        import psutil

        with self._workers() as workers:
            with Loader(_numbers().map(jitter).batch(7), workers=workers) as loader:
                next(iter(loader))
                processes = [psutil.Process(pid) for pid in workers.crew().pids()]
            workers.close()
            workers.close()
            assert not workers.started, "the workers were closed and say that they live"
            _, alive = psutil.wait_procs(processes, timeout=30)
            assert not alive, f"these workers are still there after close(): {alive}"

    # -- failure

    def test_an_exception_names_its_sample_and_the_loop_goes_on(self) -> None:
        pipeline = arrays(x=np.arange(ROWS)).map(fail_at_13).batch(6)
        with self._workers() as workers, Loader(pipeline, workers=workers) as loader:
            batches, errors = _with_errors(loader)
        assert [type(error) for error in errors] == [BadNumber], f"13 must fail alone, and this came: {errors}"
        notes = " ".join(getattr(errors[0], "__notes__", ()))
        assert "sample 13" in notes, f"the exception does not name sample 13: {notes!r}"
        left = np.concatenate([batch["x"] for batch in batches]).tolist()
        wanted = [number for number in range(ROWS) if not 12 <= number < 18]
        assert left == wanted, f"without the step of sample 13 these came: {left}"

    def test_bad_samples_are_replaced_as_inline(self) -> None:
        def make(**how: Any) -> Loader:
            return Loader(arrays(x=np.arange(ROWS)).map(fail_at_13).batch(6), on_error="replace", **how)

        with self._workers() as workers:
            check_stream(make, modes=["inline", workers])
            with make(workers=workers) as loader:
                rows = loader.collect(lambda batch: batch["x"], progress=False)
                bad = [sample.index for sample in loader.bad_samples if sample.epoch == 0]
        assert 13 not in rows.tolist(), "sample 13 fails, and it is in a batch"
        assert bad == [13], f"only sample 13 is bad, and these are said to be: {bad}"

    def test_a_killed_worker_loses_no_sample(self) -> None:
        pipeline = _numbers().map(jitter).batch(4)
        with self._workers() as workers, Loader(pipeline, workers=workers, epochs=6) as loader:
            steps = len(loader)
            for number, batch in enumerate(loader):
                wanted = loader.batch_at(*divmod(number, steps))
                _check_same(batch, wanted, f"batch {number}, with workers being killed")
                pids = workers.crew().pids()
                if pids and number % (2 * steps) == 3:
                    os.kill(pids[number % len(pids)], signal.SIGKILL)
            assert number + 1 == 6 * steps, f"{number + 1} batches came of {6 * steps}"

    # -- within

    @contextmanager
    def _workers(self) -> Iterator[Workers]:
        workers = self.make_workers()
        try:
            yield workers
        finally:
            workers.close()

    def _check(self, *pipelines: Pipeline) -> None:
        with self._workers() as workers:
            for pipeline in pipelines:
                check_stream(pipeline, modes=["inline", workers])


class _Job:
    """A job of tasks that fill the rows of one slot, with nothing between it and the crew."""

    _numbers = itertools.count(1 << 40)  # apart from the numbers of loaders

    def __init__(self, crew: Crew):
        self.crew = crew
        self.number = next(self._numbers)
        self.recipe: Recipe = arrays(10 * np.arange(ROWS)).batch(ROWS).recipe()
        layout = self.recipe.known_layout()
        assert layout is not None
        self.layouts: dict[int, Layout] = {0: layout}
        self.arena = Arena(shared=crew.shared)
        self.slot: Slot = self.arena.new(slot_bytes(ROWS, layout, 4096))
        index_view(self.slot.segment.memory, ROWS)[:] = np.arange(ROWS)
        self.rows()[:] = -1
        self.replies: list[Reply] = []
        self.locked: list[bool] = []

    def __enter__(self) -> _Job:
        with self.crew.lock:
            self.crew.join(self)
        return self

    def __exit__(self, *error: object) -> None:
        with self.crew.lock:
            self.crew.leave(self)
        self.arena.close()

    def submit(self, count: int) -> None:
        """Hand over `count` tasks, numbered from 0, that together fill the slot."""
        with self.crew.lock:
            for number in range(count):
                low, high = number * ROWS // count, (number + 1) * ROWS // count
                task = Task(number, self.number, "fill", 0, self.slot.number, low, high, rows=ROWS, layout=0)
                self.crew.submit(task)

    def memory(self, task: Task) -> Any:
        return self.slot.segment.memory

    def wait(self, count: int) -> None:
        with self.crew.lock:
            there = self.crew.wait(lambda: len(self.replies) >= count, timeout=60)
        assert there, f"{len(self.replies)} replies came within a minute, of {count}"

    def answered(self) -> list[int]:
        return sorted(reply.task for reply in self.replies)

    def rows(self) -> np.ndarray[Any, Any]:
        (view,) = row_views(self.slot.segment.memory, ROWS, self.layouts[0])
        assert view is not None
        return view

    # what the crew calls

    def replied(self, task: Task, reply: Reply) -> None:
        self.replies.append(reply)
        self.locked.append(_is_held(self.crew.lock))

    def lost(self, error: BaseException) -> None:
        raise error

    def staged(self, task: Task) -> tuple[Any, ...]:
        return ()


class BadNumber(ValueError):
    """What `fail_at_13` raises.

    >>> issubclass(BadNumber, ValueError)
    True
    """


def _numbers() -> Pipeline:
    return arrays(x=np.arange(3 * ROWS).reshape(ROWS, 3), label=np.arange(ROWS)).shuffle(seed=7)


def jitter(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A map that draws.

    >>> jitter({"x": np.zeros(3), "label": 1}, np.random.default_rng(0))["label"]
    1
    """
    return {**sample, "x": sample["x"] + rng.random()}


def scale(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """A map over batches that draws.

    >>> scale({"x": np.zeros(3)}, np.random.default_rng(0))["x"]
    array([0., 0., 0.])
    """
    return {**batch, "x": batch["x"] * rng.random()}


def is_wanted(sample: dict[str, Any]) -> bool:
    """A filter.

    >>> is_wanted({"label": 3})
    False
    """
    return bool(sample["label"] % 3)


def count_up(shard: int, epoch: int) -> Iterator[dict[str, int]]:
    """Shards of different lengths.

    >>> next(count_up(1, epoch=5))
    {'shard': 1, 'epoch': 5, 'number': 0}
    """
    for number in range(20 + 11 * shard):
        yield {"shard": shard, "epoch": epoch, "number": number}


def fail_at_13(sample: dict[str, Any]) -> dict[str, Any]:
    """A map that fails for one sample.

    >>> fail_at_13({"x": 12})
    {'x': 12}
    """
    if sample["x"] == 13:
        raise BadNumber("13 is refused")
    return sample


def _is_held(lock: Any) -> bool:
    """Whether another thread would have to wait for the lock."""
    with ThreadPoolExecutor(1) as other:
        if not other.submit(lock.acquire, blocking=False).result():
            return True
        other.submit(lock.release).result()
        return False


def _with_errors(loader: Loader) -> tuple[list[Any], list[Exception]]:
    """All batches of an epoch, and what was raised in between."""
    batches: list[Any] = []
    errors: list[Exception] = []
    iterator = iter(loader)
    while True:
        try:
            batches.append(copy.deepcopy(next(iterator)))
        except StopIteration:
            return batches, errors
        except Exception as error:
            errors.append(error.with_traceback(None))  # its frames would keep the loader alive


def _check_same(got: Any, wanted: Any, what: str) -> None:
    found = difference(got, wanted)
    assert not found, f"{what} is not what it should be: {found}"
