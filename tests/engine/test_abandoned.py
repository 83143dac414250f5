"""Epochs left in the middle, over and over: nothing grows, and every mode gives the same afterwards."""

from __future__ import annotations

import gc
import os
import random
import threading
import time
from typing import Any

import numpy as np
import psutil
import pytest

import infeed
from tests.conftest import held
from tests.engine.scripts import run
from tests.engine.test_deaths import kill, someone
from tests.engine.zoo import ZOO, Items, as_large, frozen, named, slow, stream

MODES = ["inline", "threads", "processes"]
KINDS = ["large", "rng", "graphs", "filter with rng", "shards", "map_batch"]


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KINDS)
def test_an_epoch_left_in_the_middle_many_times_makes_nothing_grow(name, mode):
    expected = stream(ZOO[name](), epochs=40, workers=0)
    slots, open_files = [], []
    with infeed.Loader(ZOO[name](), workers=2, mode=mode) as loader:
        for epoch in range(40):
            for step, batch in enumerate(loader):
                assert frozen(batch) == expected[epoch][step]
                if step == epoch % 3:
                    break
            del batch
            slots.append(loader.stats().slots)
            open_files.append(descriptors())
        stream_, crew = loader._stream, loader._stream.crew
        with crew.lock:
            waiting = len(stream_._by_task) + len(getattr(stream_, "_finding", ()))
        assert waiting <= 40
        assert [frozen(batch) for batch in loader] == stream(ZOO[name](), epochs=41, workers=0)[40]
    assert max(slots[20:]) <= max(slots[:20]) + 2
    assert max(slots) < 40
    assert max(open_files[20:]) <= max(open_files[:20]) + 2


@pytest.mark.parametrize("mode", MODES)
def test_iterators_that_are_never_used_make_nothing_grow(mode):
    with infeed.Loader(ZOO["large"](), workers=2, mode=mode) as loader:
        first = frozen(next(iter(loader)))
        for _ in range(30):
            iter(loader)
        loader.set_epoch(0)
        for _ in range(30):
            assert frozen(next(iter(loader))) == first
            loader.set_epoch(0)
        assert loader.stats().slots < 30


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", KINDS)
def test_loaders_made_and_left_one_after_another_leave_nothing(name, mode):
    def once() -> None:
        loader = infeed.Loader(ZOO[name](), workers=1, mode=mode)
        next(iter(loader))
        if mode != "processes":
            return  # forgotten
        loader.close()

    once()
    gc.collect()
    before = {kind: len(things) for kind, things in held().items()}
    for _ in range(4):
        once()
    gc.collect()
    deadline = time.monotonic() + 5
    while (now := {kind: len(things) for kind, things in held().items()}) != before:
        if time.monotonic() > deadline:
            break
        time.sleep(0.02)
        gc.collect()
    assert all(now[kind] <= before[kind] for kind in now), (before, now)


@pytest.mark.parametrize("mode", MODES)
def test_slots_stay_few_with_the_garbage_collector_off(mode):
    for pipeline in (infeed.source(Items(as_large, 96)).shuffle(3).batch(16), ZOO["filter"](), ZOO["dict"]()):
        with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
            gc.disable()
            try:
                slots = []
                for _ in range(80):
                    for step, _ in enumerate(loader):
                        if step == 2 and len(slots) % 2:
                            break
                    slots.append(loader.stats().slots)
            finally:
                gc.enable()
            assert loader.stats().copied_out == 0
        # An epoch left midway may for a moment hold its slots beside those of the next, and slots once made are
        # kept; but one lost in each of the 40 epochs left midway would show.
        assert max(slots) < 24


ACTIONS = ["for", "break 1", "break 3", "set_epoch 0", "set_epoch 5", "iter", "next", "state", "load"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", ["rng", "filter with rng", "shards", "graphs"])
def test_any_sequence_of_calls_gives_the_same_in_every_mode(name, seed):
    """`for`, `break`, `set_epoch`, iterators begun and dropped, states taken and loaded."""

    def play(**settings: Any) -> list[Any]:
        chance, seen = random.Random(seed), []
        with infeed.Loader(ZOO[name](), **settings) as loader:
            state = loader.state_dict()
            for _ in range(14):
                action = chance.choice(ACTIONS)
                if action in ("for", "break 1", "break 3"):
                    most = 99 if action == "for" else int(action[-1])
                    for step, batch in enumerate(loader, 1):
                        seen.append(frozen(batch))
                        if step == most:
                            break
                elif action.startswith("set_epoch"):
                    loader.set_epoch(int(action[-1]))
                elif action == "iter":
                    iter(loader)
                elif action == "next":
                    seen.append(frozen(next(iter(loader))))
                elif action == "state":
                    state = loader.state_dict()
                else:
                    loader.load_state_dict(state)
                seen.append((action, loader.epoch))
        return seen

    expected = play(workers=0)
    assert play(workers=0, prefetch=3) == expected
    assert play(workers=2, mode="threads") == expected
    assert play(workers=3, mode="threads", prefetch=1) == expected
    assert play(workers=2, mode="processes") == expected


@pytest.mark.parametrize("seed", range(2))
def test_loaders_in_threads_on_shared_workers_that_are_killed(seed):
    names = ["rng", "filter", "graphs", "shards"]
    given: dict[str, Any] = {}
    done = threading.Event()
    chance = random.Random(seed)
    with infeed.Workers(2, mode="processes") as workers:

        def consume(name: str) -> None:
            pipeline = ZOO[name]()
            with infeed.Loader(pipeline, workers=workers) as loader:
                given[name] = [[frozen(batch) for batch in loader] for _ in range(6)]

        threads = [threading.Thread(target=consume, args=(name,)) for name in names]
        for thread in threads:
            thread.start()
        kills = 0
        while any(thread.is_alive() for thread in threads) and kills < 8:
            done.wait(0.04)
            kill(someone(workers.crew(), chance, helper=0.25))
            kills += 1
        for thread in threads:
            thread.join()
    assert given == {name: stream(ZOO[name](), epochs=6, workers=0) for name in names}


@pytest.mark.parametrize("seed", range(2))
def test_one_random_schedule_of_kills_in_the_middle_of_everything(seed):
    """Workers and helper die at random moments, while epochs are left, batches kept and states loaded."""
    chance, done = random.Random(seed), threading.Event()
    pipeline = infeed.source(Items(as_large, 120)).shuffle(2).map(slow(0.0005)).map(noisy_image).batch(8)
    expected = stream(pipeline, epochs=4, workers=0)
    kept = []
    with infeed.Loader(pipeline, workers=3, mode="processes", start=True) as loader:
        crew = loader._stream.crew

        def assassin() -> None:
            while not done.wait(0.05 + 0.1 * chance.random()):
                kill(someone(crew, chance, helper=0.15))

        thread = threading.Thread(target=assassin)
        thread.start()
        try:
            for epoch in range(3):
                for step, batch in enumerate(loader):
                    kept.append((batch, expected[epoch][step]))
                    if epoch == 1 and step == 6:
                        break
            for step in (3, 11):
                loader.set_epoch(3)
                iterator = iter(loader)
                kept.extend((next(iterator), expected[3][number]) for number in range(step))
                state = loader.state_dict()
                loader.set_epoch(0)
                next(iter(loader))
                loader.load_state_dict(state)
                kept.extend((batch, expected[3][step + number]) for number, batch in enumerate(loader))
        finally:
            done.set()
            thread.join()
        deaths = loader.stats().worker_deaths
    assert deaths > 0
    assert all(frozen(batch) == wanted for batch, wanted in kept)


def noisy_image(sample: Any, rng: Any) -> Any:
    return {**sample, "x": sample["x"] + rng.random((64, 64), np.float32)}


@pytest.mark.parametrize("mode", MODES)
def test_a_fork_of_the_users_process_disturbs_neither(mode):
    """The child reads the batch it was forked with; the parent goes on; the child's end ends nothing."""
    done = run(f"""
        import os, sys, numpy as np, infeed
        x = np.arange(64 * 900.0).reshape(64, 900)
        pipeline = infeed.arrays(x=x).shuffle(1).map(lambda sample: sample).batch(4)
        with infeed.Loader(pipeline, workers=2, mode={mode!r}) as loader:
            iterator = iter(loader)
            batch = next(iterator)
            sums = [float(batch["x"].sum())]
            for number in range(3):
                pid = os.fork()
                if pid == 0:
                    same = float(batch["x"].sum()) == sums[0]
                    del batch, iterator
                    if number == 1:
                        loader.close()
                    if number == 2:
                        os._exit(0 if same else 9)
                    sys.exit(0 if same else 9)
                assert os.waitpid(pid, 0)[1] == 0
                sums.append(float(next(iterator)["x"].sum()))
            sums.extend(float(batch["x"].sum()) for batch in iterator)
            assert len(sums) == 16 and sum(sums) == float(x.sum()), sums
            print(loader.stats().worker_deaths, len(list(loader)))
    """, "-W", "ignore::DeprecationWarning", timeout=30)  # fmt: skip
    assert (done.stdout, done.stderr) == ("0 16\n", "")


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_a_timeout_that_passes_again_and_again_loses_nothing(mode):
    pipeline = named().map(slow(0.03)).batch(8)
    seen, stalls = [], 0
    with infeed.Loader(pipeline, workers=2, mode=mode, timeout=0.05) as loader:
        iterator = iter(loader)
        while True:
            try:
                seen.append(frozen(next(iterator)))
            except StopIteration:
                break
            except infeed.Stalled:
                stalls += 1
    assert stalls > 0
    assert [seen] == stream(named().batch(8), epochs=1, workers=0)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["arrays", "general", "strings", "filter"])
def test_memory_stays_flat_over_many_epochs(name, mode):
    rows = np.zeros((20_000, 256), np.float32)
    pipeline = {
        "arrays": lambda: infeed.arrays(x=rows).shuffle(1).batch(64),
        "general": lambda: infeed.arrays(x=rows).shuffle(1).map(lambda s: s).batch(64, collate="concat"),
        "strings": lambda: infeed.source([f"text {i}" for i in range(100_000)]).shuffle(1).batch(256),
        "filter": lambda: infeed.arrays(x=rows).shuffle(1).filter(lambda s: True).map(noisy_row).batch(64),
    }[name]()
    used = []
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        for _ in range(20):
            for _ in loader:
                pass
            used.append(_pss())
    assert max(used[10:]) < max(used[2:10]) + (4 << 20), [one >> 20 for one in used]


def noisy_row(sample: Any, rng: Any) -> Any:
    return {"x": sample["x"] + rng.random(256, np.float32)}


def _pss() -> int:
    """Bytes of this process and all below it, shared pages counted once."""
    total = 0
    for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
        try:
            total += process.memory_full_info().pss
        except psutil.NoSuchProcess:
            continue
    return total
