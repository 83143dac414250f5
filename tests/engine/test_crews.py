"""Workers that several loaders share, loaders in threads, loaders that are forgotten, and what a setup may do."""

from __future__ import annotations

import gc
import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import infeed
from tests.engine.zoo import ZOO, Items, as_dict, frozen, named, slow, stream

MODES = ["inline", "threads", "processes"]


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_two_loaders_share_one_set_of_workers(mode):
    with infeed.Workers(2, mode=mode) as workers:
        train = infeed.Loader(ZOO["rng"](), workers=workers)
        test = infeed.Loader(ZOO["dict"](), workers=workers)
        expected = stream(ZOO["rng"](), epochs=3, workers=0), stream(ZOO["dict"](), epochs=3, workers=0)
        for epoch in range(3):
            assert [frozen(batch) for batch in train] == expected[0][epoch]
            assert [frozen(batch) for batch in test] == expected[1][epoch]
        if mode == "processes":
            assert len(psutil.Process().children(recursive=True)) == 3
        train.close()
        test.set_epoch(0)
        assert [frozen(batch) for batch in test] == expected[1][0]
        test.close()


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_two_loaders_of_one_set_may_be_used_in_turns(mode):
    with (
        infeed.Workers(2, mode=mode) as workers,
        infeed.Loader(ZOO["rng"](), workers=workers) as left,
        infeed.Loader(ZOO["filter"](), workers=workers) as right,
    ):
        pairs = [(frozen(a), frozen(b)) for a, b in zip(left, right, strict=False)]
    expected = stream(ZOO["rng"](), epochs=1, workers=0)[0], stream(ZOO["filter"](), epochs=1, workers=0)[0]
    assert pairs == list(zip(*expected, strict=False))


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_closing_the_workers_first_is_told_to_the_loader(mode):
    workers = infeed.Workers(2, mode=mode)
    loader = infeed.Loader(named().map(slow(0.001)).batch(2), workers=workers, timeout=30)
    iterator = iter(loader)
    next(iterator)
    workers.close()
    with pytest.raises(infeed.InfeedError, match="closed") as caught:
        for _ in iterator:
            pass
    assert not isinstance(caught.value, infeed.Stalled)
    loader.close()
    del iterator, loader


@pytest.mark.parametrize("mode", MODES)
def test_loaders_run_in_threads_side_by_side(mode):
    expected = stream(ZOO["rng"](), workers=0)
    given: list[Any] = [None] * 3

    def feed(number: int) -> None:
        given[number] = stream(ZOO["rng"](), workers=2, mode=mode)

    threads = [threading.Thread(target=feed, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert given == [expected] * 3


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_threads_may_share_the_workers(mode):
    expected = stream(ZOO["rng"](), workers=0)
    given: list[Any] = [None] * 4
    with infeed.Workers(2, mode=mode) as workers:

        def feed(number: int) -> None:
            given[number] = stream(ZOO["rng"](), workers=workers)

        threads = [threading.Thread(target=feed, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert given == [expected] * 4


@pytest.mark.parametrize("mode", MODES)
def test_threads_may_share_one_iterator(mode):
    pipeline = infeed.source(Items(as_dict, 200)).map(slow(0.0005)).batch(4)
    seen: list[int] = []
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        iterator = iter(loader)

        def consume() -> None:
            for batch in iterator:
                seen.extend(batch["y"].tolist())

        threads = [threading.Thread(target=consume) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(seen) == list(range(200))


@pytest.mark.parametrize("mode", ["threads", "processes"])
@pytest.mark.parametrize("moment", ["made", "started", "in the middle", "at the end"])
def test_a_forgotten_loader_ends_its_workers(mode, moment):
    loader = infeed.Loader(named().map(slow(0.001)).batch(2), workers=2, mode=mode, start=moment == "started")
    if moment == "in the middle":
        next(iter(loader))
    if moment == "at the end":
        for _ in loader:
            pass
    del loader
    gc.collect()
    assert not [child for child in psutil.Process().children(recursive=True) if child.is_running()]


@pytest.mark.parametrize("mode", MODES)
def test_closing_gives_the_memory_back_at_once(mode):
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("memfd:infeed")

    gc.collect()
    before = mapped()
    gc.disable()
    try:
        with infeed.Loader(ZOO["large"](), workers=2, mode=mode) as loader:
            for batch in loader:
                del batch
        assert mapped() == before
    finally:
        gc.enable()


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_the_setup_runs_once_in_every_worker_before_all_else(method, tmp_path):
    def setup(worker: int) -> None:
        Path(tmp_path, f"{worker}-{os.getpid()}").touch()
        os.environ["WHO"] = str(worker)

    def who(sample: Any) -> Any:
        return int(os.environ["WHO"])

    pipeline = infeed.source(list(range(64))).map(slow(0.001)).map(who).batch(2)
    with infeed.Loader(pipeline, workers=2, mode="processes", worker_setup=setup, start_method=method) as loader:
        seen = set(np.concatenate([batch for _ in range(2) for batch in loader]).tolist())
    assert seen == {0, 1}
    assert sorted(path.name[0] for path in tmp_path.iterdir()) == ["0", "1"]


def test_the_setup_runs_in_threads_too():
    own = threading.local()

    def setup(worker: int) -> None:
        own.number = worker

    pipeline = infeed.source(list(range(64))).map(lambda sample: own.number).batch(2)
    with infeed.Loader(pipeline, workers=2, mode="threads", worker_setup=setup) as loader:
        assert set(np.concatenate(list(loader)).tolist()) <= {0, 1}


def test_workers_stay_between_epochs():
    with infeed.Loader(ZOO["dict"](), workers=2, mode="processes") as loader:
        pids = []
        for _ in range(3):
            for _ in loader:
                pass
            pids.append(sorted(loader._stream.crew.pids()))
    assert pids[0] == pids[1] == pids[2]


def test_workers_import_no_torch_and_inherit_no_descriptor(tmp_path):
    import torch  # noqa: F401

    def look(sample: Any) -> Any:
        import sys

        targets = []
        for name in os.listdir("/proc/self/fd"):
            try:
                targets.append(os.readlink(f"/proc/self/fd/{name}"))
            except FileNotFoundError:
                continue
        return "torch" in sys.modules, any("secret" in target for target in targets)

    with open(tmp_path / "secret", "w") as file:
        os.set_inheritable(file.fileno(), True)
        pipeline = infeed.source([1, 2]).map(look).batch(2)
        with infeed.Loader(pipeline, workers=1, mode="processes") as loader:
            assert [column.tolist() for column in next(iter(loader))] == [[False] * 2, [False] * 2]


def test_filling_begins_with_start_and_goes_on_into_the_next_epoch(tmp_path):
    def touch(sample: Any) -> Any:
        with open(tmp_path / "log", "a") as file:
            file.write("x")
        return sample

    def written() -> int:
        path = tmp_path / "log"
        return path.stat().st_size if path.exists() else 0

    def wait_for(count: int) -> None:
        deadline = time.monotonic() + 20
        while written() < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert written() >= count

    pipeline = infeed.source(list(range(12))).map(slow(0.001)).map(touch).batch(4)
    with infeed.Loader(pipeline, workers=2, mode="processes", prefetch=2, start=True) as loader:
        wait_for(8)
        for _ in loader:
            pass
        wait_for(20)


@pytest.mark.parametrize("mode", MODES)
def test_prefetch_bounds_how_far_ahead_the_workers_go(mode):
    pipeline = infeed.source(list(range(1000))).map(slow(0.0)).batch(10)
    with infeed.Loader(pipeline, workers=2, mode=mode, prefetch=3) as loader:
        iterator = iter(loader)
        for _ in range(10):
            next(iterator)
        time.sleep(0.2)
        assert loader.stats().samples <= (10 + 3 + 2) * 10


@pytest.mark.parametrize("mode", MODES)
def test_a_newer_iterator_takes_over(mode):
    with infeed.Loader(ZOO["rng"](), workers=2, mode=mode) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        with pytest.raises(infeed.PipelineError, match="newer"):
            next(old)
        assert [frozen(batch) for batch in new] == stream(ZOO["rng"](), workers=0)[1]


def test_large_arrays_travel_once_however_many_workers(tmp_path):
    data = np.random.default_rng(0).random((4000, 1000))  # 32 MB
    np.save(tmp_path / "mapped.npy", data[:100])
    mapped = np.load(tmp_path / "mapped.npy", mmap_mode="r")
    shared = infeed.share(data[:500])

    def private(sample: Any) -> Any:
        text = Path("/proc/self/smaps_rollup").read_text()
        return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Private_Dirty"))

    for source in (data, mapped, shared, np.asfortranarray(data), data[::2]):
        pipeline = infeed.arrays(x=source).take(64).map(private).batch(8)
        with infeed.Loader(pipeline, workers=3, mode="processes") as loader:
            assert max(int(batch.max()) for batch in loader) < 30_000
            assert np.array_equal(
                np.concatenate(
                    [b["x"] for b in infeed.Loader(infeed.arrays(x=source).take(64).batch(8), workers=0)]
                ),
                np.asarray(source)[:64],
            )


def test_a_dataset_that_writes_into_its_own_arrays_disturbs_nobody():
    data = np.zeros((1000, 100))

    def scribble(sample: Any) -> Any:
        before = sample["x"].sum()
        data[:] = 7
        return before

    with infeed.Loader(
        infeed.arrays(x=data.copy()).map(scribble).batch(100), workers=2, mode="processes"
    ) as loader:
        assert all(batch.sum() == 0 for batch in loader)
    assert data.sum() == 0


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_one_large_step_is_filled_by_several_workers(mode):
    pipeline = (
        infeed.source(list(range(400))).map(slow(0.001)).map(lambda i: (i, threading.get_native_id())).batch(400)
    )
    with infeed.Loader(pipeline, workers=2, mode=mode, epochs=2) as loader:
        *_, batch = loader
        assert len(set(batch[1].tolist())) == 2
        assert batch[0].tolist() == list(range(400))
