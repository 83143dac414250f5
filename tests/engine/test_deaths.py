"""Every sample of an epoch exactly once, under any schedule of deaths of workers and of the helper."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest

import infeed
from tests.engine.zoo import ZOO, Items, as_dict, fail_at, frozen, kill_at, named, noisy, slow, stream

METHODS = [None, "fork", "spawn"]


def kill(pid: int) -> None:
    """Kill one worker or helper of a loader of this test, if it is still there."""
    try:
        if pid:
            os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def someone(crew: Any, chance: random.Random, helper: float) -> int:
    with crew.lock:
        if chance.random() < helper:
            return int(crew.helper_pid)
        pids = crew.pids()
        return chance.choice(pids) if pids else 0


def flaky_stream(pipeline: Any, seed: int, helper: float, epochs: int = 2, **settings: Any) -> list[list[Any]]:
    """The stream of a loader, some of whose processes are killed between batches."""
    chance = random.Random(seed)
    given = []
    with infeed.Loader(pipeline, mode="processes", **settings) as loader:
        for _ in range(epochs):
            given.append([])
            for batch in loader:
                given[-1].append(frozen(batch))
                if chance.random() < 0.3:
                    kill(someone(loader._stream.crew, chance, helper))
    return given


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    "name", ["dict", "rng", "large", "one at a time", "graphs", "plan of ragged", "python random"]
)
def test_killed_workers_change_nothing(name, seed):
    assert flaky_stream(ZOO[name](), seed, helper=0.0, workers=2) == stream(ZOO[name](), workers=0)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", ["filter", "filter with rng", "shards", "iterable with state", "iterable, maps"])
def test_killed_workers_change_nothing_of_a_scanned_pipeline(name, seed):
    assert flaky_stream(ZOO[name](), seed, helper=0.0, workers=2) == stream(ZOO[name](), workers=0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", ["rng", "filter", "shards"])
def test_a_killed_helper_changes_nothing(name, method):
    given = flaky_stream(ZOO[name](), 1, helper=1.0, epochs=1, workers=2, start_method=method)
    assert given == stream(ZOO[name](), epochs=1, workers=0)


@pytest.mark.parametrize("seed", range(3))
def test_workers_and_helper_killed_while_work_is_in_hand_lose_and_repeat_nothing(seed):
    pipeline = infeed.source(Items(as_dict, 400)).shuffle(seed).map(slow(0.001)).batch(8)
    chance, seen, done = random.Random(seed), [], threading.Event()
    with infeed.Loader(pipeline, workers=2, mode="processes") as loader:
        iterator = iter(loader)
        seen.extend(next(iterator)["y"].tolist())

        def assassin() -> None:
            for _ in range(12):
                if done.wait(0.03 + chance.random() * 0.03):
                    return
                if loader._stream is not None:
                    kill(someone(loader._stream.crew, chance, helper=0.2))

        thread = threading.Thread(target=assassin)
        thread.start()
        try:
            for batch in iterator:
                seen.extend(batch["y"].tolist())
        finally:
            done.set()
            thread.join()
        expected = np.concatenate([loader.indices_at(0, step) for step in range(len(loader))]).tolist()
        deaths = loader.stats().worker_deaths
    assert seen == expected
    assert deaths > 0 or seed


def test_all_workers_killed_at_once_while_idle_are_replaced():
    with infeed.Loader(ZOO["dict"](), workers=3, mode="processes") as loader:
        first = [frozen(batch) for batch in loader]
        with loader._stream.crew.lock:
            for pid in loader._stream.crew.pids():
                kill(pid)
            kill(loader._stream.crew.helper_pid)
        second = [frozen(batch) for batch in loader]
    assert [first, second] == stream(ZOO["dict"](), workers=0)


def test_a_helper_that_dies_after_idle_workers_have_died_is_replaced():
    with infeed.Loader(ZOO["dict"](), workers=4, mode="processes") as loader:
        first = [frozen(batch) for batch in loader]
        crew = loader._stream.crew
        deadline = time.monotonic() + 20
        for _ in range(2):  # more deaths than the helper itself may have in a row
            while any(worker.hand for worker in list(crew._workers.values())) and time.monotonic() < deadline:
                time.sleep(0.01)
            with crew.lock:
                deaths, pids = crew.deaths, crew.pids()
                for pid in pids:
                    kill(pid)
            while (crew.deaths < deaths + len(pids) or len(crew.pids()) < 4) and time.monotonic() < deadline:
                time.sleep(0.01)
        kill(crew.helper_pid)
        later = [[frozen(batch) for batch in loader] for _ in range(4)]
    assert [first, *later] == stream(ZOO["dict"](), epochs=5, workers=0)


def test_a_worker_killed_before_its_first_task_is_replaced():
    with infeed.Loader(ZOO["dict"](), workers=2, mode="processes", start=True) as loader:
        for _ in range(2):
            kill(loader._stream.crew.helper_pid)
        assert [frozen(batch) for batch in loader] == stream(ZOO["dict"](), epochs=1, workers=0)[0]


@pytest.mark.parametrize("method", METHODS)
def test_a_sample_that_kills_its_worker_is_named_and_the_rest_is_delivered(method):
    pipeline = named().map(kill_at(11)).batch(8)
    seen, errors = [], []
    with infeed.Loader(pipeline, workers=2, mode="processes", start_method=method) as loader:
        iterator = iter(loader)
        while True:
            try:
                seen.append(next(iterator)["y"].tolist())
            except StopIteration:
                break
            except infeed.SampleKilledWorker as error:
                errors.append(str(error))
        assert loader.stats().worker_deaths >= 2
    assert len(errors) == 1
    assert "sample 11 " in errors[0]
    assert seen == [list(range(8)), *(list(range(i, min(i + 8, 37))) for i in (16, 24, 32))]


@pytest.mark.parametrize("size", [1, 4, 16, 37])
def test_several_samples_that_kill_their_worker_are_left_out_under_replace(size):
    pipeline = named().map(kill_at(2, 30)).batch(size)
    with infeed.Loader(pipeline, workers=2, mode="processes", on_error="replace") as loader:
        batches = [batch["y"].copy() for batch in loader]
        assert sorted(bad.index for bad in loader.bad_samples if bad.epoch == 0) == [2, 30]
        assert all(isinstance(bad.error, infeed.SampleKilledWorker) for bad in loader.bad_samples)
    given = np.concatenate(batches)
    kept = np.setdiff1d(np.arange(37), [2, 30])
    assert len(given) == 37
    assert np.array_equal(given[kept], kept)
    assert not {2, 30} & set(given.tolist())


def test_what_takes_the_place_of_a_fatal_sample_is_what_takes_the_place_of_one_that_raises():
    fatal = stream(named().map(kill_at(5)).batch(8), epochs=1, workers=2, mode="processes", on_error="replace")
    raising = stream(named().map(fail_at(5)).batch(8), epochs=1, workers=0, on_error="replace")
    assert fatal == raising


@pytest.mark.parametrize("where", ["collate", "map_batch", "source"])
def test_a_fatal_batch_is_raised_and_does_not_hang(where):
    home = os.getpid()

    def fatal(value: Any) -> Any:
        found = value["y"] if isinstance(value, dict) else [sample["y"] for sample in value]
        if 11 in found and os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    if where == "collate":
        pipeline = named().map(noisy).batch(8, collate=fatal)
    elif where == "map_batch":
        pipeline = named().map(noisy).batch(8).map_batch(fatal)
    else:
        made = kill_at(11)
        pipeline = infeed.source(Items(lambda index: made({"y": index}))).batch(8)
    seen = 0
    with infeed.Loader(pipeline, workers=2, mode="processes") as loader:
        iterator = iter(loader)
        with pytest.raises(infeed.WorkerError):  # noqa: PT012
            for _ in iterator:
                seen += 1
        assert seen == 1
        assert sum(1 for _ in iterator) == 3


@pytest.mark.parametrize("kind", ["filter", "iterable"])
def test_a_sample_that_kills_its_worker_in_a_scanned_pipeline_is_raised_and_does_not_hang(kind):
    fatal = kill_at(11)
    if kind == "filter":
        pipeline = named().map(fatal).filter(lambda sample: True).batch(4)
    else:
        pipeline = infeed.iterable(lambda: ({"y": index} for index in range(40))).map(fatal).batch(4)
    with infeed.Loader(pipeline, workers=2, mode="processes", timeout=60) as loader:
        with pytest.raises(infeed.WorkerError) as caught:
            list(loader)
        assert not isinstance(caught.value, infeed.Stalled)


def test_workers_that_always_die_end_in_an_exception():
    def setup(worker: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with (
        infeed.Loader(named().batch(8), workers=2, mode="processes", worker_setup=setup, timeout=60) as loader,
        pytest.raises(infeed.WorkerDied, match="SIGKILL"),
    ):
        list(loader)


def test_a_stopped_worker_delays_and_loses_nothing():
    pipeline = infeed.source(Items(as_dict, 60)).map(slow(0.001)).batch(4)
    with infeed.Loader(pipeline, workers=2, mode="processes") as loader:
        iterator = iter(loader)
        seen = [frozen(next(iterator))]
        pid = loader._stream.crew.pids()[0]
        os.kill(pid, signal.SIGSTOP)
        timer = threading.Timer(0.3, os.kill, (pid, signal.SIGCONT))
        timer.start()
        seen.extend(frozen(batch) for batch in iterator)
        timer.join()
    assert [seen] == stream(pipeline, epochs=1, workers=0)


def test_a_worker_that_leaves_with_sys_exit_is_told_of():
    def leaving(sample: Any) -> Any:
        if sample["y"] == 11:
            raise SystemExit(3)
        return sample

    with (
        infeed.Loader(named().map(leaving).batch(8), workers=2, mode="processes", timeout=60) as loader,
        pytest.raises((infeed.WorkerError, SystemExit)) as caught,
    ):
        list(loader)
    assert not isinstance(caught.value, infeed.Stalled)


def test_a_loader_that_is_closed_with_dead_workers_ends():
    for victim in ("workers", "helper", "all"):
        with infeed.Loader(ZOO["dict"](), workers=2, mode="processes") as loader:
            next(iter(loader))
            crew = loader._stream.crew
            with crew.lock:
                pids = [] if victim == "helper" else crew.pids()
                pids += [] if victim == "workers" else [crew.helper_pid]
                for pid in pids:
                    kill(pid)
    assert not [child for child in psutil.Process().children() if child.status() != psutil.STATUS_ZOMBIE]
