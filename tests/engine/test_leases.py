"""No batch changes while a reference to it lives."""

from __future__ import annotations

import gc
import itertools
import threading
import warnings
from typing import Any

import numpy as np
import pytest

import infeed
from tests.engine.scripts import run
from tests.engine.zoo import ZOO, Items, as_large, frozen, stream

MODES = ["inline", "threads", "processes"]
LARGE = 4 * 64 * 64 * 16


def large(count: int = 96) -> Any:
    return infeed.source(Items(as_large, count)).shuffle(3).batch(16)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "name", ["arrays", "dict", "large", "graphs", "tensor items", "own collate", "filter", "one at a time"]
)
def test_kept_batches_stay_as_they_were(name, mode):
    with infeed.Loader(ZOO[name](), workers=2, mode=mode) as loader:
        kept = [batch for _ in range(4) for batch in loader]
    expected = list(itertools.chain.from_iterable(stream(ZOO[name](), epochs=4, workers=0)))
    assert [frozen(batch) for batch in kept] == expected


@pytest.mark.parametrize("mode", MODES)
def test_a_view_of_a_view_is_enough_to_keep_a_batch(mode):
    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        kept = []
        for batch in loader:
            kept.append((batch["x"][3:5, 10][:, ::7], batch["x"][3:5, 10][:, ::7].copy()))
            del batch
        for _ in range(3):
            for _ in loader:
                pass
    assert all(np.array_equal(view, copy) for view, copy in kept)


@pytest.mark.parametrize("mode", MODES)
def test_slots_are_used_again_when_nothing_is_kept(mode):
    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        for _ in range(10):
            for _ in loader:
                pass
        assert loader.stats().slots < 12
        assert loader.stats().copied_out == 0


@pytest.mark.parametrize("mode", MODES)
def test_a_kept_label_holds_no_slot(mode):
    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        labels = [batch["y"] for _ in range(10) for batch in loader]
        assert loader.stats().slots < 12
    assert np.array_equal(np.sort(np.concatenate(labels)), np.sort(np.tile(np.arange(96), 10)))


@pytest.mark.parametrize("mode", MODES)
def test_batches_in_reference_cycles_come_back_with_the_garbage(mode):
    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        gc.disable()
        try:
            for batch in loader:
                batch["self"] = batch
                batch["list"] = [batch["x"]]
        finally:
            gc.enable()
        del batch
        gc.collect()
        before = loader.stats().slots
        assert [frozen(batch["x"]) for batch in loader] == [step[1][0][1] for step in stream(large(), workers=0)[1]]
        assert loader.stats().slots <= before + 1


@pytest.mark.parametrize("mode", MODES)
def test_batches_may_be_let_go_in_other_threads(mode):
    import queue

    hand_over: Any = queue.Queue(4)
    wrong = []

    def consumer() -> None:
        while (pair := hand_over.get()) is not None:
            batch, expected = pair
            if not np.array_equal(batch["x"][:, 0, 0], expected):
                wrong.append(expected)
            del batch, pair

    threads = [threading.Thread(target=consumer) for _ in range(3)]
    with infeed.Loader(large(), workers=2, mode=mode, epochs=6) as loader:
        for thread in threads:
            thread.start()
        for batch in loader:
            hand_over.put((batch, batch["y"].astype(np.float32)))
            del batch
        for _ in threads:
            hand_over.put(None)
        for thread in threads:
            thread.join()
        assert loader.stats().slots < 30
    assert not wrong


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["large", "tensor items", "graphs", "own collate", "filter"])
def test_batches_outlive_their_loader(mode, name):
    loader = infeed.Loader(ZOO[name](), workers=2, mode=mode)
    iterator = iter(loader)
    kept = [next(iterator), next(iterator)]
    loader.close()
    del loader, iterator
    gc.collect()
    assert [frozen(batch) for batch in kept] == stream(ZOO[name](), epochs=1, workers=0)[0][:2]
    for batch in kept:
        for leaf in batch.values():
            if isinstance(leaf, np.ndarray) and leaf.flags.writeable:
                leaf[...] = 0  # the memory is there, and is ours


@pytest.mark.parametrize("mode", MODES)
def test_keeping_all_makes_the_arena_grow_and_then_copies_with_one_warning(mode):
    with infeed.Loader(large(320), workers=2, mode=mode, memory_limit=8 * LARGE) as loader:
        with pytest.warns(RuntimeWarning, match="copies") as told:
            kept = [batch for _ in range(2) for batch in loader]
        assert len(told) == 1
        assert loader.stats().copied_out > 0
        assert loader.stats().slot_bytes <= 8 * LARGE
        assert [frozen(batch) for batch in kept] == list(
            itertools.chain.from_iterable(stream(large(320), workers=0))
        )
        del kept
        gc.collect()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            copied = loader.stats().copied_out
            for batch in loader:
                del batch
        assert loader.stats().copied_out <= copied + 1


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["arrays", "graphs", "filter", "shards", "plan of ragged"])
def test_a_small_memory_limit_changes_nothing_but_copies(mode, name):
    settings = {"workers": 2, "mode": mode, "memory_limit": 1 << 20}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with infeed.Loader(ZOO[name](), **settings) as loader:
            kept = [batch for _ in range(6) for batch in loader]
    assert [frozen(batch) for batch in kept] == list(
        itertools.chain.from_iterable(stream(ZOO[name](), epochs=6, workers=0))
    )


def test_too_little_memory_for_one_slot_is_told_at_construction():
    with pytest.raises(infeed.OutOfMemory, match="smaller"):
        infeed.Loader(infeed.arrays(np.zeros((64, 1 << 16))).batch(64), workers=0, memory_limit=1 << 20)
    with (
        pytest.raises(infeed.OutOfMemory),
        infeed.Loader(
            infeed.source(Items(as_large)).batch(37), workers=2, mode="processes", memory_limit=1 << 15
        ) as one,
    ):
        list(one)


@pytest.mark.parametrize("mode", MODES)
def test_batches_kept_until_the_interpreter_exits_are_no_trouble(mode):
    done = run(f"""
        import numpy as np, infeed
        loader = infeed.Loader(infeed.arrays(x=np.zeros((64, 999))).batch(8), workers=2, mode={mode!r})
        kept = list(loader)
        kept[0]["cycle"] = kept
        print(sum(batch["x"].size for batch in kept))
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{64 * 999}\n", "")


@pytest.mark.parametrize("mode", MODES)
def test_leaving_in_the_middle_of_an_epoch_is_no_trouble(mode):
    done = run(f"""
        import numpy as np, infeed, time
        def slow(sample):
            time.sleep(0.05)
            return sample
        loader = infeed.Loader(infeed.arrays(x=np.zeros((640, 9))).map(slow).batch(8), workers=2, mode={mode!r})
        for batch in loader:
            break
        print("left")
    """)
    assert (done.returncode, done.stdout, done.stderr) == (0, "left\n", "")


@pytest.mark.parametrize("mode", MODES)
def test_writing_into_a_batch_changes_no_other_batch(mode):
    expected = stream(large(), epochs=3, workers=0)
    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        for epoch in range(3):
            for number, batch in enumerate(loader):
                assert frozen(batch) == expected[epoch][number]
                batch["x"][...] = -1
                batch["y"][...] = -1


@pytest.mark.parametrize("mode", MODES)
def test_tensors_that_look_into_a_batch_keep_it(mode):
    import torch

    with infeed.Loader(large(), workers=2, mode=mode) as loader:
        kept = []
        for batch in loader:
            kept.append((torch.from_numpy(batch["x"]), batch["x"].copy()))
            del batch
        for _ in range(3):
            for _ in loader:
                pass
        assert all(np.array_equal(tensor.numpy(), copy) for tensor, copy in kept)
