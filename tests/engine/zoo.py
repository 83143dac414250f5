"""Pipelines of every kind, and a way to compare what they give bit by bit.

Everything here can be imported by a worker without pytest.
"""

from __future__ import annotations

import dataclasses
import os
import random
import signal
import time
from collections import namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np

import infeed

N = 37


def frozen(value: Any) -> Any:
    """A value as something that compares equal only if every bit and every type is the same."""
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject:
            return "array", str(value.dtype), value.shape, [frozen(item) for item in value.ravel()]
        return "array", str(value.dtype), value.shape, np.ascontiguousarray(value).tobytes()
    if type(value).__module__.startswith("torch"):
        plain = value.detach().float() if "bfloat" in str(value.dtype) else value.detach()  # numpy has no such type
        return "tensor", str(value.dtype), tuple(value.shape), plain.numpy().tobytes()
    if isinstance(value, np.generic):
        return "scalar", str(value.dtype), value.tobytes()
    if isinstance(value, dict):
        return type(value).__name__, [(key, frozen(item)) for key, item in value.items()]
    if dataclasses.is_dataclass(value):
        fields = dataclasses.fields(value)
        return type(value).__name__, [frozen(getattr(value, field.name)) for field in fields]
    if isinstance(value, list | tuple):
        return type(value).__name__, [frozen(item) for item in value]
    return type(value).__name__, value


def stream(pipeline: Any, epochs: int = 2, **settings: Any) -> list[list[Any]]:
    """What a loader gives in so many epochs."""
    with infeed.Loader(pipeline, **settings) as loader:
        return [[frozen(batch) for batch in loader] for _ in range(epochs)]


class Items:
    """A user's dataset: one Python call for each sample."""

    def __init__(self, make: Callable[[int], Any], count: int = N):
        self.make = make
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < self.count:
            raise IndexError(index)
        return self.make(index)


class ManyItems(Items):
    """The same with a call for many samples."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(int(index)) for index in indices]


Pair = namedtuple("Pair", "x y")


@dataclasses.dataclass
class Record:
    """A sample that is a dataclass."""

    x: Any
    name: Any


def row(index: int, width: int = 5) -> Any:
    return np.arange(index * width, (index + 1) * width, dtype=np.float32)


def as_dict(index: int) -> Any:
    return {"x": row(index), "y": index, "name": f"sample {index}", "deep": {"z": (row(index, 2), [index, 1.5])}}


def as_tuple(index: int) -> Any:
    return row(index), index


def as_pair(index: int) -> Any:
    return Pair(row(index), np.int16(index))


def as_record(index: int) -> Any:
    return Record(row(index), f"{index}")


def as_list(index: int) -> Any:
    return [row(index), index]


def as_float(index: int) -> Any:
    return index / 7


def as_text(index: int) -> Any:
    return "x" * (index % 5)


def as_bytes(index: int) -> Any:
    return b"y" * index


def as_none(index: int) -> Any:
    return {"x": row(index), "nothing": None, "yes": index % 2 == 0}


def as_empty(index: int) -> Any:
    return {"x": np.zeros((0, 3)), "y": np.zeros((2, 0), np.int8), "i": index}


def as_structured(index: int) -> Any:
    return np.array((index, index / 2), dtype=[("a", "i4"), ("b", "f8")])


def as_odd_dtypes(index: int) -> Any:
    return {
        "c": np.complex64(index + 1j),
        "t": np.datetime64("2024-01-01") + np.timedelta64(index, "D"),
        "b": np.bool_(index % 2),
        "big": np.array([index, 2], ">i4"),
        "f": np.asfortranarray(np.arange(6.0).reshape(2, 3) + index),
        "u": np.array("text"[: index % 4 + 1], "U4"),
    }


def as_ragged(index: int) -> Any:
    return {"x": np.full((index % 4 + 1, 3), index, np.float32), "y": index}


def as_graph(index: int) -> Any:
    nodes = index % 5 + 2
    edges = np.stack([np.arange(nodes), (np.arange(nodes) + 1) % nodes])
    return {"nodes": np.full((nodes, 4), index, np.float32), "edges": edges.T.copy(), "label": index}


def as_tensor(index: int) -> Any:
    import torch

    return {"x": torch.full((3, 2), float(index)), "y": torch.tensor(index), "z": index}


def as_large(index: int) -> Any:
    return {"x": np.full((64, 64), index, np.float32), "y": index}


def sometimes_wide(index: int) -> Any:
    """Neighbours agree, but a batch of eight, as a whole, has another shape than the one before."""
    return {"x": np.full(3 + index // 8 % 2, index, np.float64), "y": index}


def noisy(sample: Any, rng: Any) -> Any:
    return {**sample, "x": sample["x"] + rng.random(len(sample["x"]), np.float32)}


def twice(sample: Any) -> Any:
    return {**sample, "x": sample["x"] * 2}


def with_python_random(sample: Any) -> Any:
    return {**sample, "r": random.random(), "s": random.randint(0, 1 << 30)}


def with_numpy_random(sample: Any) -> Any:
    return {**sample, "r": np.random.rand(3), "n": np.random.randn()}


def with_torch_random(sample: Any) -> Any:
    import torch

    return {**sample, "r": torch.rand(3)}


def with_all_random(sample: Any) -> Any:
    return with_torch_random({**with_numpy_random(with_python_random(sample)), "x": sample["x"]})


def seldom_random(sample: Any) -> Any:
    """Draws for few samples, so that its use of a global generator is not seen at once."""
    return {**sample, "r": random.random() if sample["y"] % 11 == 10 else 0.0}


def random_item(index: int) -> Any:
    return {"x": np.random.rand(4), "y": index}


def write_row(sample: Any, out: Any) -> None:
    out["x"][:] = sample["x"] * 3
    out["y"][...] = sample["y"]


def write_noise(sample: Any, rng: Any, out: Any) -> None:
    rng.random(out=out["x"])
    out["y"][...] = sample["y"]


OUT = {"x": ((5,), "float32"), "y": ((), "int64")}
OUT_DOUBLE = {"x": ((5,), "float64"), "y": ((), "int64")}


def two_of_three(sample: Any) -> bool:
    return bool(sample["y"] % 3)


def by_chance(sample: Any, rng: Any) -> bool:
    return bool(rng.random() < 0.6)


def numbers() -> Any:
    for index in range(50):
        yield {"x": row(index), "y": index}


def numbers_of_shard(shard: int, epoch: int) -> Any:
    for index in range(20 + 13 * shard):
        yield {"x": row(index), "y": 1000 * shard + index, "epoch": epoch}


class Counting:
    """An iterator that can tell and take its place."""

    def __init__(self, shard: int):
        self.shard, self.at = shard, 0

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.at >= 30 + self.shard:
            raise StopIteration
        self.at += 1
        return {"y": 1000 * self.shard + self.at}

    def state_dict(self) -> Any:
        return {"at": self.at}

    def load_state_dict(self, state: Any) -> None:
        self.at = state["at"]


def batch_noise(batch: Any, rng: Any) -> Any:
    return {**batch, "x": batch["x"] + rng.random(batch["x"].shape, np.float32)}


def batch_mean(batch: Any) -> Any:
    return {"mean": batch["x"].mean(axis=0), "y": batch["y"]}


def batch_global(batch: Any) -> Any:
    return {**batch, "r": np.random.rand(2)}


def own_collate(samples: Any) -> Any:
    return {"count": len(samples), "x": np.stack([sample["x"] for sample in samples]), "o": {"set": {1, 2}}}


def random_collate(samples: Any) -> Any:
    return np.stack([sample["x"] for sample in samples]) + random.random()


class Scale:
    """A map with state."""

    def __init__(self, factor: float):
        self.factor = np.full(1 << 15, factor)

    def __call__(self, sample: Any) -> Any:
        return {**sample, "x": sample["x"] * self.factor[:5]}


def kill_at(*bad: int) -> Callable[[Any], Any]:
    """A map that ends its process at these samples, when that is not the process it was made in."""
    home = os.getpid()

    def fatal(sample: Any) -> Any:
        if int(sample["y"]) in bad and os.getpid() != home:
            os.kill(os.getpid(), signal.SIGKILL)
        return sample

    return fatal


def fail_at(*bad: int, kind: type[Exception] = ZeroDivisionError) -> Callable[[Any], Any]:
    """A map that raises at these samples."""

    def failing(sample: Any) -> Any:
        if int(sample["y"] if isinstance(sample, dict) else sample) in bad:
            raise kind(f"no good: {sample}")
        return sample

    return failing


def slow(seconds: float) -> Callable[[Any], Any]:
    """A map that takes its time."""

    def sleeping(sample: Any) -> Any:
        time.sleep(seconds)
        return sample

    return sleeping


def named() -> Any:
    """The plain arrays most entries start from."""
    x = np.arange(N * 5, dtype=np.float32).reshape(N, 5)
    return infeed.arrays(x=x, y=np.arange(N))


def _zoo() -> dict[str, Callable[[], Any]]:
    def items(make: Callable[[int], Any], count: int = N) -> Any:
        return infeed.source(Items(make, count)).shuffle(seed=3)

    def tensors() -> Any:
        import torch

        return infeed.arrays(x=torch.arange(N * 3.0).reshape(N, 3), y=np.arange(N)).shuffle(seed=1)

    plan = infeed.Plan(2, accumulate=2, replicas=2, iterations=2)
    return {
        "arrays": lambda: named().shuffle(seed=7).batch(8),
        "bare array": lambda: infeed.arrays(np.arange(N * 2).reshape(N, 2)).batch(5),
        "two arrays": lambda: infeed.arrays(np.arange(N), np.arange(N) / 2).shuffle(1).batch(5, drop_last=True),
        "nested lists": lambda: infeed.arrays(x=[[i, i + 1] for i in range(N)]).shuffle(2).batch(6),
        "strings": lambda: infeed.source([f"{i}" * (i % 3) for i in range(N)]).shuffle(2).batch(6),
        "dict": lambda: items(as_dict).batch(8),
        "many": lambda: infeed.source(ManyItems(as_dict)).shuffle(4).batch(8),
        "tuple": lambda: items(as_tuple).batch(8),
        "named tuple": lambda: items(as_pair).batch(8),
        "dataclass": lambda: items(as_record).batch(8),
        "list": lambda: items(as_list).batch(8),
        "float": lambda: items(as_float).batch(8),
        "str": lambda: items(as_text).batch(8),
        "bytes": lambda: items(as_bytes).batch(8),
        "none and bool": lambda: items(as_none).batch(8),
        "empty": lambda: items(as_empty).batch(8),
        "structured": lambda: items(as_structured).batch(8),
        "odd dtypes": lambda: items(as_odd_dtypes).batch(4),
        "large": lambda: items(as_large).batch(16),
        "one at a time": lambda: items(as_dict).batch(1),
        "larger than the data": lambda: items(as_dict).batch(100),
        "wrapped": lambda: items(as_dict).batch(8, last="wrap"),
        "wrapped beyond itself": lambda: items(as_dict, 3).batch(8, last="wrap"),
        "tensors": lambda: tensors().batch(8),
        "tensor items": lambda: items(as_tensor).batch(8),
        "map": lambda: named().shuffle(7).map(twice).map(Scale(2.0)).batch(8),
        "rng": lambda: named().shuffle(7).map(noisy).map(twice).map(noisy).batch(8),
        "python random": lambda: named().shuffle(7).map(with_python_random).batch(8),
        "numpy random": lambda: named().shuffle(7).map(with_numpy_random).batch(8),
        "torch random": lambda: named().shuffle(7).map(with_torch_random).batch(8),
        "all randoms": lambda: named().shuffle(7).map(with_all_random).map(noisy).batch(8),
        "seldom random": lambda: named().shuffle(7).map(seldom_random).batch(4),
        "random source": lambda: items(random_item).batch(8),
        "random collate": lambda: named().map(twice).batch(8, collate=random_collate),
        "out": lambda: named().shuffle(7).map(write_row, out=OUT).batch(8),
        "out with rng": lambda: named().shuffle(7).map(write_noise, out=OUT_DOUBLE).batch(8),
        "out of ragged": lambda: items(as_dict).map(twice).map(write_row, out=OUT).batch(3),
        "filter": lambda: named().shuffle(7).filter(two_of_three).batch(6),
        "filter with rng": lambda: named().shuffle(7).map(noisy).filter(by_chance).map(noisy).batch(6),
        "filters, dropped": lambda: items(as_dict).filter(two_of_three).filter(by_chance).batch(5, drop_last=True),
        "filter, padded": lambda: items(as_ragged).filter(two_of_three).batch(5, collate="pad"),
        "filter by global": lambda: named().map(with_python_random).filter(by_chance).batch(5),
        "filter of many": lambda: infeed.source(range(1000)).filter(lambda i: i % 7 == 3).batch(16),
        "iterable": lambda: infeed.iterable(numbers).batch(8),
        "iterable, maps": lambda: infeed.iterable(numbers).map(noisy).filter(two_of_three).map(noisy).batch(8),
        "shards": lambda: infeed.iterable(numbers_of_shard, shards=3).map(noisy).batch(7),
        "shards, dropped": lambda: infeed.iterable(numbers_of_shard, shards=4).batch(9, drop_last=True),
        "iterable with state": lambda: infeed.iterable(Counting, shards=2).batch(7),
        "iterable plan": lambda: infeed.iterable(numbers).batch(infeed.Plan(2, accumulate=3), drop_last=True),
        "pad": lambda: items(as_ragged).batch(8, collate="pad"),
        "pad to length": lambda: items(as_ragged).batch(8, collate=infeed.Pad(length=6)),
        "concat": lambda: items(as_ragged).batch(8, collate="concat"),
        "graphs": lambda: items(as_graph).batch(8, collate=infeed.Concat(shift={"edges": "nodes"})),
        "list of ragged": lambda: items(as_ragged).batch(8, collate="list"),
        "own collate": lambda: items(as_dict).batch(8, collate=own_collate),
        "changing shapes": lambda: infeed.source(Items(sometimes_wide)).batch(8),
        "map_batch": lambda: named().shuffle(7).batch(8).map_batch(batch_noise),
        "map_batch to another size": lambda: named().shuffle(7).map(noisy).batch(8).map_batch(batch_mean),
        "map_batch with globals": lambda: named().shuffle(7).batch(8).map_batch(batch_global),
        "plan": lambda: named().shuffle(7).map(noisy).batch(plan),
        "plan of ragged": lambda: items(as_ragged).batch(plan, collate="pad", last="drop"),
        "plan with map_batch": lambda: named().shuffle(7).batch(plan, last="wrap").map_batch(batch_noise),
        "replica": lambda: named().map(noisy).batch(infeed.Plan(3, replicas=2, replica=1), drop_last=True),
        "block shuffle": lambda: named().shuffle(seed=5, block=4).map(noisy).batch(8),
        "weighted": lambda: named().weighted(np.arange(N), samples=40, seed=5).map(noisy).batch(8),
        "balanced": lambda: named().balanced(np.arange(N) % 3, seed=5).batch(8),
        "given order": lambda: named().order(lambda epoch: [epoch, 5, 3, 3, epoch + 7]).map(noisy).batch(2),
        "views": lambda: named().skip(3).take(30).shuffle(2).shard(1, 2).repeat(2).map(noisy).batch(4),
        "select": lambda: named().select("x").rename(x="z").shuffle(1).batch(8),
        "zip of mapped": lambda: infeed.zip(
            a=named().shuffle(1).map(noisy), b=items(as_pair), c=named().map(with_python_random)
        ).shuffle(3).batch(8),
        "concat of mapped": lambda: infeed.concat(
            named().map(noisy).shuffle(1), named().skip(5).map(twice)
        ).shuffle(3).batch(8),
        "choose of mapped": lambda: infeed.choose(
            [named().shuffle(1).map(noisy), named().map(noisy)], weights=[3, 1], stop="all"
        ).map(noisy).batch(8),
        "window": lambda: named().map(noisy).window(3, stride=2).shuffle(1).batch(4),
        "lambda": lambda: infeed.source(list(range(N))).map(lambda i: {"i": i, "s": str(i)}).batch(8),
        "cut over and over": lambda: named().shuffle(3).map(slow(0.0005)).map(noisy).batch(32),
    }  # fmt: skip


ZOO = _zoo()
IN_THREADS = [
    name
    for name in ZOO
    if name
    not in {
        "python random", "numpy random", "torch random", "all randoms", "seldom random", "random source",
        "random collate", "filter by global", "map_batch with globals", "zip of mapped",
    }
]  # fmt: skip
