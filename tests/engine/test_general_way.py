"""Batches that have no fixed layout, larger than what travels inside a pickle: whole, and left alone while kept."""

from __future__ import annotations

import gc
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import infeed
from infeed.wire import Region, decode, encode
from tests.engine.zoo import Items, frozen, named, stream

MODES = ["inline", "threads", "processes"]
COUNT = 80


def ragged(index: int) -> Any:
    """Two fields whose batches are larger than 2 kB, and of another size for every step."""
    return {
        "a": np.full((index % 7 + 1, 64), index, np.float32),
        "b": np.full((index % 5 + 1, 32), -index, np.int64),
        "y": index,
    }


def even(index: int) -> Any:
    return {"a": np.full((2, 64), index, np.float32), "b": np.full(32, -index), "y": index}


def turned(batch: Any) -> Any:
    """The fields in the opposite order to that in which the collate made them."""
    return dict(reversed(list(batch.items())))


def halved(batch: Any) -> Any:
    """Views into what the collate made: contiguous, strided, and twice the same."""
    return {"tail": batch["a"][1:], "odd": batch["a"][::2], "again": batch["a"], "b": batch["b"][:, ::-1]}


def with_more(batch: Any) -> Any:
    return {"new": np.full(5000, len(batch["y"])), **batch, "more": [np.ones((40, 40)), batch["b"] * 2]}


def moved(batch: Any) -> Any:
    batch["a"] += 1
    return batch


def wide_sums(batch: Any) -> Any:
    """Nothing of it has a row for each sample."""
    return {"sum": np.full(3000, batch["y"].sum()), "y": batch["y"]}


def _pipelines() -> dict[str, Any]:
    def of(make: Any, collate: Any, size: Any = 8, count: int = COUNT, **settings: Any) -> Any:
        return infeed.source(Items(make, count)).shuffle(3).batch(size, collate=collate, **settings)

    shift = infeed.Concat(shift={"b": "a"})
    return {
        "concat": lambda: of(ragged, "concat"),
        "concat, shifted": lambda: of(ragged, shift),
        "concat, turned": lambda: of(ragged, "concat").map_batch(turned),
        "concat, views": lambda: of(ragged, "concat").map_batch(halved),
        "concat, more": lambda: of(ragged, "concat").map_batch(with_more),
        "concat, moved": lambda: of(ragged, "concat").map_batch(moved),
        "concat of many": lambda: of(ragged, "concat", 300, 600),
        "pad": lambda: of(ragged, "pad"),
        "pad, turned": lambda: of(ragged, "pad").map_batch(turned),
        "pad of many": lambda: of(ragged, "pad", 300, 600),
        "pad, plan": lambda: of(ragged, "pad", infeed.Plan(4, accumulate=2, iterations=2)),
        "list": lambda: of(ragged, "list"),
        "stack, turned": lambda: of(even, "stack").map_batch(turned),
        "stack, views": lambda: of(even, "stack").map_batch(halved),
        "sums": lambda: of(even, "stack").map_batch(wide_sums),
        "gather, sums": lambda: infeed.arrays(y=np.arange(COUNT)).shuffle(1).batch(8).map_batch(wide_sums),
        "filter, concat": lambda: infeed.source(Items(ragged, COUNT))
        .filter(lambda s: s["y"] % 3)
        .batch(8, collate="concat")
        .map_batch(turned),
        "filter, list": lambda: infeed.source(Items(ragged, COUNT))
        .filter(lambda s: s["y"] % 3)
        .batch(8, collate="list"),
        "iterable, pad": lambda: infeed.iterable(lambda: (ragged(i) for i in range(COUNT)))
        .batch(8, collate="pad")
        .map_batch(turned),
        "tensors, pad": lambda: of(ragged, "pad").map_batch(_as_tensors),
    }  # fmt: skip


def _as_tensors(batch: Any) -> Any:
    import torch

    return {key: torch.from_numpy(value) for key, value in reversed(list(batch.items()))}


PIPELINES = _pipelines()


def flat(epochs: list[list[Any]]) -> list[Any]:
    return list(itertools.chain.from_iterable(epochs))


@pytest.mark.parametrize("name", PIPELINES)
def test_every_mode_gives_the_same(name):
    expected = stream(PIPELINES[name](), workers=0)
    assert stream(PIPELINES[name](), workers=2, mode="threads") == expected
    assert stream(PIPELINES[name](), workers=2, mode="processes") == expected


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PIPELINES)
def test_kept_batches_do_not_change(name, mode):
    """Some are kept for ever, some for a while, so that slots go round between those that are held."""
    pipeline = PIPELINES[name]()
    kept: list[Any] = []
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        for number, batch in enumerate(itertools.chain.from_iterable(loader for _ in range(5))):
            kept.append([number, batch, frozen(batch)])
            del batch
            if number % 3:
                kept.pop(-1 - number % 2 if len(kept) > 1 else -1)
            for _, held, before in kept[-6:]:
                assert frozen(held) == before
        for _ in loader:
            pass
    expected = flat(stream(pipeline, epochs=5, workers=0))
    assert len(kept) > 3
    for number, held, before in kept:
        assert frozen(held) == before == expected[number]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["concat", "pad", "sums", "stack, views", "filter, concat", "tensors, pad"])
def test_one_array_of_a_batch_is_enough_to_keep_it(name, mode):
    pipeline = PIPELINES[name]()
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        kept = []
        for batch in loader:
            for leaf in batch.values():
                if getattr(leaf, "ndim", 0):
                    kept.append((leaf[len(leaf) // 2 :], frozen(leaf[len(leaf) // 2 :])))
            del batch, leaf
        for _ in range(4):
            for _ in loader:
                pass
    assert kept
    assert all(frozen(view) == before for view, before in kept)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", ["concat", "pad", "sums", "filter, concat", "list"])
def test_slots_stay_few_with_the_garbage_collector_off(name, mode):
    with infeed.Loader(PIPELINES[name](), workers=2, mode=mode) as loader:
        gc.disable()
        try:
            seen = []
            for _ in range(12):
                for _ in loader:
                    pass
                seen.append(loader.stats().slots)
        finally:
            gc.enable()
        assert loader.stats().copied_out == 0
    assert max(seen) < 24
    assert seen[-1] <= seen[3] + 2


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", PIPELINES)
def test_a_tiny_memory_limit_changes_nothing(name, mode):
    pipeline = PIPELINES[name]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        with infeed.Loader(pipeline, workers=2, mode=mode, memory_limit=3 << 20) as loader:
            kept = [batch for _ in range(2) for batch in loader]
    assert [frozen(batch) for batch in kept] == flat(stream(pipeline, workers=0))


def test_a_state_kept_by_a_map_over_batches_is_not_written_over():
    """In the loop's own process a function that remembers a batch holds it as the loop does."""
    for mode in ("inline", "threads"):
        remembered: list[Any] = []

        def remember(batch: Any, store: Any = remembered) -> Any:
            store.append((batch["a"], batch["a"].copy()))
            return batch

        pipeline = infeed.source(Items(ragged, COUNT)).batch(8, collate="concat").map_batch(remember)
        with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
            for _ in range(4):
                for _ in loader:
                    pass
        assert len(remembered) >= 4 * COUNT // 8
        assert all(np.array_equal(held, copy) for held, copy in remembered)


def test_what_lies_behind_a_region_is_not_taken_for_a_part_of_it():
    memory = np.zeros(1 << 17, np.uint8)
    neighbour = memory[8192 : 8192 + 16000].view(np.float32)
    neighbour[:] = 3
    spilled: list[Any] = []

    def spill(nbytes: int) -> Any:
        spilled.append(np.zeros(nbytes, np.uint8))
        return spilled[0]

    where = encode([np.ones(8192), neighbour], Region(memory[:4096]), spill)
    first, second = decode(where, spilled[0])
    assert (first == 1).all()
    assert (second == 3).all()


@pytest.mark.parametrize("size", [1 << 16, 9000, 4096])
def test_arrays_made_inside_a_region_survive_in_any_order(size):
    region = Region(np.zeros(size, np.uint8))
    made = [region.new((600,), np.dtype("int64")) for _ in range(3)]
    for number, array in enumerate(made):
        array[:] = number
    spilled: list[Any] = []

    def spill(nbytes: int) -> Any:
        spilled.append(np.zeros(nbytes, np.uint8))
        return spilled[0]

    mixed = [made[2], np.full(700, 7), made[0][100:], made[1], made[1][::2]]
    where = encode(mixed, region, spill)
    back = decode(where, spilled[0] if spilled else region.memory)
    assert [(set(array.tolist()), len(array)) for array in back] == [
        ({2}, 600), ({7}, 700), ({0}, 500), ({1}, 600), ({1}, 300)
    ]  # fmt: skip


def test_a_batch_in_order_of_a_plain_gather_is_also_the_same_with_large_extras():
    pipeline = named().shuffle(1).batch(8).map_batch(lambda batch: {"z": np.zeros((500, 2)), **batch})
    expected = stream(pipeline, workers=0)
    assert stream(pipeline, workers=2, mode="processes") == expected
