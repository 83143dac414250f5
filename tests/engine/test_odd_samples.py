"""Samples, sizes and settings at the edges: the same bytes in every mode."""

from __future__ import annotations

import dataclasses
import itertools
import warnings
from typing import Any

import numpy as np
import pytest

import infeed
from tests.engine.zoo import Items, frozen, named, noisy, stream

MODES = [("threads", 2), ("processes", 2)]


@dataclasses.dataclass
class Box:
    """An inner dataclass."""

    low: Any
    high: Any


@dataclasses.dataclass(frozen=True)
class Scene:
    """A dataclass that holds others, in containers too."""

    boxes: tuple[Box, Box]
    by_name: dict[str, Box]
    text: str
    number: float


def _box(index: int, width: int = 3) -> Box:
    return Box(np.full(width, index, np.float32), index)


def _scene(index: int) -> Scene:
    return Scene((_box(index), _box(-index, 2)), {"a": _box(index, 700)}, f"scene {index}", index / 3)


def _tensors(index: int) -> Any:
    import torch

    return {
        "x": torch.full((30, 20), float(index)),
        "strided": torch.arange(12).reshape(3, 4).T + index,
        "none": torch.zeros((0, 3)),
        "flag": torch.tensor(index % 2 == 0),
        "half": torch.full((4,), index, dtype=torch.float16),
        "brain": torch.full((4,), index, dtype=torch.bfloat16),
        "n": (torch.tensor(index), [torch.ones(2) * index]),
    }


def _ragged_tensors(index: int) -> Any:
    import torch

    return {"x": torch.full((index % 4 + 1, 200), float(index)), "y": index}


STRUCTURED = np.dtype([("a", "i4"), ("b", "f8", (2, 2)), ("s", "S3"), ("when", "M8[s]")])

SAMPLES = {
    "zero length": lambda i: {"x": np.zeros(0, np.float32), "y": np.zeros((3, 0, 2), np.int8), "i": i},
    "only zero length": lambda i: np.zeros((0, 5)),
    "0-d": lambda i: {"x": np.array(i, np.int16), "y": np.float32(i), "z": np.array(i / 7)},
    "0-d alone": lambda i: np.array(i),
    "structured": lambda i: np.array((i, [[i, 1], [2, i]], b"ab"[: i % 3], i), STRUCTURED),
    "structured rows": lambda i: {"r": np.array([(i, [[i, 1], [2, i]], b"x", i)] * 4, STRUCTURED)},
    "bool": lambda i: {"a": bool(i % 2), "b": np.bool_(i % 3), "c": np.arange(5) % 2 == i % 2},
    "complex": lambda i: {"a": complex(i, -i), "b": np.complex64(i + 2j), "c": np.full((2, 2), i * 1j)},
    "dates": lambda i: {
        "d": np.datetime64("2024-02-28") + i,
        "ns": np.datetime64("NaT", "ns") if i % 5 == 0 else np.datetime64(i, "ns"),
        "t": np.full(3, i, "m8[us]"),
    },
    "fixed strings": lambda i: {"u": np.array(["ä" * (i % 4), "b"], "U6"), "s": np.array(b"q" * (i % 4), "S5")},
    "long strings": lambda i: {"s": chr(97 + i % 26) * (i * 977 % 40_000), "b": b"\0" * (i * 311 % 9000), "i": i},
    "one very long string": lambda i: "é" * (2_000_000 if i == 11 else 3),
    "halves": lambda i: {"h": np.full(7, i, np.float16)},
    "big endian": lambda i: {"x": np.full((3, 2), i, ">f8"), "y": np.uint64(2**63 + i)},
    "fortran": lambda i: {"x": np.asfortranarray(np.arange(6e3).reshape(60, 100) + i), "r": np.arange(9)[::-2] + i},
    "read-only": lambda i: {"x": np.broadcast_to(np.float32(i), (50, 40))},
    "nan and -0.0": lambda i: {"x": np.array([np.nan, -0.0, np.inf]) * (1 if i % 2 else -1), "y": -0.0},
    "nested dataclasses": _scene,
    "deep": lambda i: {"a": [{"b": ({"c": [np.full(3, i), [i, (i,)]]}, None)}, f"{i}"]},
    "keys that are no strings": lambda i: {0: np.full(600, i), (1, 2): i, None: "x" * i},
    "empty containers": lambda i: {"a": {}, "b": (), "c": [], "i": i},
    "objects": lambda i: {"o": frozenset({i, 2}), "n": None, "r": range(i), "i": i},
    "tensors": _tensors,
}  # fmt: skip


@pytest.mark.parametrize(("mode", "count"), MODES)
def test_samples_of_every_kind_are_the_same_in_every_mode(mode, count):
    differing = []
    with infeed.Workers(count, mode=mode) as workers:
        for (name, make), size in itertools.product(SAMPLES.items(), (1, 7)):
            pipeline = infeed.source(Items(make, 23)).shuffle(5).batch(size)
            if stream(pipeline, workers=workers) != stream(pipeline, workers=0):
                differing.append((name, size))
    assert not differing


@pytest.mark.parametrize(
    "name", ["0-d", "bool", "structured rows", "dates", "zero length", "big endian", "tensors"]
)
def test_a_stacked_batch_holds_the_samples(name):
    """Against numpy's own way of stacking, not against ourselves."""
    made = SAMPLES[name]
    with infeed.Loader(infeed.source(Items(made, 23)).batch(5), workers=2, mode="processes") as loader:
        first = next(iter(loader))
    for key, column in first.items():
        if isinstance(column, np.ndarray):
            samples = [np.asarray(made(index)[key]) for index in range(5)]
            assert frozen(column) == frozen(np.array(samples, samples[0].dtype))
        elif key == "x":
            assert column.tolist() == [made(index)[key].tolist() for index in range(5)]


def _large_and_odd(index: int) -> Any:
    """Too large to travel inside a pickle, and of a type that must come back as it was."""
    return {
        "big": np.full(600, index, ">f8"),
        "complex": np.full((20, 30), index * 1j),
        "dates": np.full(600, index, "M8[h]"),
        "rows": np.array([(index, [[index, 1], [2, index]], b"x", index)] * 100, STRUCTURED),
        "text": np.full(300, f"é{index}"),
        "fortran": np.asfortranarray(np.arange(6e3).reshape(60, 100) + index),
        "bool": np.arange(5000) % 3 == index % 3,
    }


@pytest.mark.parametrize("mode", ["threads", "processes"])
@pytest.mark.parametrize("collate", ["list", "concat"])
def test_large_arrays_of_odd_types_come_back_as_they_were(mode, collate):
    if collate == "concat":
        pipeline = infeed.source(Items(_large_and_odd, 23)).map(_without_text).batch(4, collate=collate)
    else:
        pipeline = infeed.source(Items(_large_and_odd, 23)).batch(4, collate=collate)
    assert stream(pipeline, workers=2, mode=mode) == stream(pipeline, workers=0)
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        first = next(iter(loader))
    if collate == "list":
        for key, column in first.items():
            assert [frozen(array) for array in column] == [frozen(_large_and_odd(i)[key]) for i in range(4)]


def _without_text(sample: Any) -> Any:
    return {key: value for key, value in sample.items() if key != "text"}


@pytest.mark.parametrize("collate", ["pad", "concat", "list"])
def test_ragged_tensors_are_the_same_in_every_mode_and_stay_tensors(collate):
    import torch

    pipeline = infeed.source(Items(_ragged_tensors, 30)).shuffle(1).batch(6, collate=collate)
    expected = stream(pipeline, workers=0)
    for mode, workers in MODES:
        with infeed.Loader(pipeline, workers=workers, mode=mode) as loader:
            kept = [batch for _ in range(2) for batch in loader]
        assert [frozen(batch) for batch in kept] == list(itertools.chain.from_iterable(expected))
        some = kept[0]["x"][0] if collate == "list" else kept[0]["x"]
        assert isinstance(some, torch.Tensor)


SIZES = [
    (1, 1, "keep"),
    (1, 5, "keep"),
    (1, 5, "wrap"),
    (3, 3, "drop"),
    (7, 99, "keep"),
    (5, 2, "drop"),
    (9, 4, "wrap"),
]


@pytest.mark.parametrize(("mode", "workers"), [("threads", 8), ("processes", 3)])
def test_small_datasets_and_large_batches(mode, workers):
    with infeed.Workers(workers, mode=mode) as crew:
        for (count, size, last), collate in itertools.product(SIZES, ["stack", "pad", "concat", "list", len]):
            samples = infeed.arrays(x=np.arange(count * 3.0).reshape(count, 3), y=np.arange(count))
            pipeline = samples.shuffle(1).map(noisy32).batch(size, last=last, collate=collate)
            expected = stream(pipeline, workers=0, epochs=3)
            assert [len(epoch) for epoch in expected] == [len(pipeline)] * 3
            assert stream(pipeline, workers=crew, epochs=3) == expected, (count, size, last, collate)


def noisy32(sample: Any, rng: Any) -> Any:
    return {**sample, "x": sample["x"] + rng.random(3)}


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_more_workers_than_batches(mode):
    pipeline = named().shuffle(2).map(noisy).batch(15)
    assert len(pipeline) == 3
    assert stream(pipeline, workers=8, mode=mode, epochs=4) == stream(pipeline, workers=0, epochs=4)


@pytest.mark.parametrize("prefetch", [1, 100])
@pytest.mark.parametrize("mode", ["inline", "threads", "processes"])
def test_prefetch_of_one_and_of_very_many(mode, prefetch):
    kinds = [
        named().shuffle(2).map(noisy).batch(4),
        named().shuffle(2).filter(lambda sample: sample["y"] % 3).batch(4),
        infeed.source(Items(SAMPLES["nested dataclasses"], 23)).batch(3, collate="list"),
    ]
    for pipeline in kinds:
        given = stream(pipeline, workers=2, mode=mode, prefetch=prefetch, epochs=3)
        assert given == stream(pipeline, workers=0, epochs=3)


@pytest.mark.parametrize("mode", ["inline", "threads", "processes"])
@pytest.mark.parametrize("limit", [1 << 16, 1 << 20])
@pytest.mark.parametrize("collate", ["stack", "pad", "concat", "list", "own"])
def test_a_tiny_memory_limit_either_works_or_says_so(mode, limit, collate):
    def own(samples: Any) -> Any:
        return np.stack([sample["x"] for sample in samples])

    pipeline = infeed.arrays(x=np.arange(64 * 300.0).reshape(64, 300), y=np.arange(64)).map(lambda sample: sample)
    pipeline = pipeline.batch(8, collate=own if collate == "own" else collate)
    expected = list(itertools.chain.from_iterable(stream(pipeline, workers=0, epochs=2)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        told, kept = "", []
        try:
            with infeed.Loader(pipeline, workers=2, mode=mode, memory_limit=limit) as loader:
                kept = [batch for _ in range(2) for batch in loader]
        except infeed.OutOfMemory as error:
            told = str(error)
    if told:
        assert limit < 1 << 20
        assert "memory_limit" in told
    else:
        assert [frozen(batch) for batch in kept] == expected
