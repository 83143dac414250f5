"""Bad arguments each get an exception at construction that says what to do."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import infeed
from tests.engine.zoo import Items, as_dict, named, stream


def fine() -> Any:
    return named().batch(8)


@pytest.mark.parametrize(
    "arguments",
    [
        {"workers": -1}, {"workers": 1.5}, {"workers": "many"}, {"workers": None}, {"workers": True},
        {"workers": [2]},
        {"mode": "process"}, {"mode": None}, {"mode": 3}, {"mode": ["threads"]},
        {"prefetch": 0}, {"prefetch": -3}, {"prefetch": 1.5}, {"prefetch": "lots"},
        {"epochs": 0}, {"epochs": -1}, {"epochs": 2.5}, {"epochs": "all"},
        {"on_error": "ignore"}, {"on_error": None},
        {"timeout": 0}, {"timeout": -1}, {"timeout": "long"}, {"timeout": float("nan")},
        {"memory_limit": 0}, {"memory_limit": -5}, {"memory_limit": "1GB"},
        {"worker_setup": 7}, {"start_method": "clone"}, {"start_method": 3},
    ],
    ids=str,
)  # fmt: skip
def test_bad_settings_of_a_loader_are_refused_by_name(arguments):
    name = next(iter(arguments)).removeprefix("worker_")
    settings = {"workers": 2, "mode": "processes", **arguments}
    with pytest.raises(infeed.PipelineError, match=name):
        infeed.Loader(fine(), **settings)
    if "mode" not in arguments and "workers" not in arguments:
        with pytest.raises(infeed.PipelineError, match=name):
            infeed.Loader(fine(), **arguments)


BAD: dict[str, Any] = {
    "no batch": lambda: infeed.Loader(named()),
    "batch of zero": lambda: named().batch(0),
    "negative batch": lambda: named().batch(-4),
    "batch of a half": lambda: named().batch(2.5),
    "batch of nothing": lambda: named().batch(None),
    "batched twice": lambda: named().batch(4).batch(2),
    "map after batch": lambda: named().batch(4).map(len),
    "shuffle after batch": lambda: named().batch(4).shuffle(),
    "map_batch before batch": lambda: named().map_batch(len),
    "shuffle after filter": lambda: named().filter(len).shuffle(),
    "shuffle of an iterable": lambda: infeed.iterable(lambda: iter(())).shuffle(),
    "zip of an iterable": lambda: infeed.zip(infeed.iterable(lambda: iter(())), [1]),
    "unequal fields": lambda: infeed.arrays(x=np.zeros(3), y=np.zeros(4)),
    "no arrays": lambda: infeed.arrays(),
    "both kinds of arrays": lambda: infeed.arrays(np.zeros(3), y=np.zeros(3)),
    "no samples": lambda: infeed.arrays(np.zeros((0, 3))).batch(4),
    "drops all": lambda: named().batch(100, drop_last=True),
    "contradiction": lambda: named().batch(4, drop_last=True, last="wrap"),
    "unknown last": lambda: named().batch(4, last="some"),
    "unknown collate": lambda: named().batch(4, collate="heap"),
    "wrap without a length": lambda: named().filter(len).batch(4, last="wrap"),
    "replica out of range": lambda: infeed.Plan(4, replicas=2, replica=2),
    "negative replica": lambda: infeed.Plan(4, replicas=2, replica=-1),
    "no replicas": lambda: infeed.Plan(4, replicas=0),
    "no accumulation": lambda: infeed.Plan(4, accumulate=0),
    "no iterations": lambda: infeed.Plan(4, iterations=0),
    "half a micro-batch": lambda: infeed.Plan(0.5),
    "map of no function": lambda: named().map(7),
    "filter of no function": lambda: named().filter("x"),
    "out without out": lambda: named().map(len, out={"x": ((), int)}),
    "out not declared": lambda: named().map(lambda sample, out: None),
    "out of nonsense": lambda: named().map(lambda sample, out: None, out={"x": "many"}),
    "map after out": lambda: named().map(lambda s, out: None, out={"x": ((), int)}).map(len),
    "map of two": lambda: named().map(lambda a, b: a),
    "map of none": lambda: named().map(lambda: 0),
    "negative take": lambda: named().take(-1),
    "take of a word": lambda: named().take("all"),
    "take of true": lambda: named().take(True),
    "shard of none": lambda: named().shard(0, 0),
    "shard beyond": lambda: named().shard(3, 3),
    "repeat never": lambda: named().repeat(0),
    "split too much": lambda: named().split(0.8, 0.8),
    "split by nothing": lambda: named().split(),
    "one fold": lambda: named().folds(1),
    "too many folds": lambda: named().folds(100),
    "subset beyond": lambda: named().subset([100]),
    "order beyond": lambda: named().order([100]),
    "weights too few": lambda: named().weighted([1, 2]),
    "negative weights": lambda: named().weighted(np.full(37, -1)),
    "no weight at all": lambda: named().weighted(np.zeros(37)),
    "labels too few": lambda: named().balanced([1, 2]),
    "block of none": lambda: named().shuffle(block=0),
    "seed of a word": lambda: named().shuffle(seed="seven"),
    "negative seed": lambda: named().shuffle(seed=-1),
    "select of nothing": lambda: named().select(),
    "select of the unknown": lambda: named().select("z"),
    "rename of the unknown": lambda: named().rename(z="a"),
    "window of none": lambda: named().window(0),
    "window beyond": lambda: named().window(100),
    "source of a number": lambda: infeed.source(7),
    "source of a dict": lambda: infeed.source({"x": [1]}),
    "iterable of an iterator": lambda: infeed.iterable(iter([1])),
    "iterable without shard": lambda: infeed.iterable(lambda: iter(()), shards=2),
    "choose of nothing": lambda: infeed.choose([]),
    "choose with few weights": lambda: infeed.choose([[1], [2]], weights=[1]),
    "workers of auto": lambda: infeed.Workers(2, mode="auto"),
    "negative workers": lambda: infeed.Workers(-2),
    "other mode than the workers": lambda: infeed.Loader(
        fine(), workers=infeed.Workers(2, mode="threads"), mode="processes"
    ),
    "loader of nothing": lambda: infeed.Loader(None),
    "no such files": lambda: infeed.files("/no/such/folder/*.png", read=len),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_work_is_refused_at_construction(name):
    with pytest.raises(infeed.PipelineError) as caught:
        BAD[name]()
    assert len(str(caught.value)) > 20


def test_a_closed_loader_says_so():
    for mode in ("inline", "threads", "processes"):
        loader = infeed.Loader(fine(), workers=1, mode=mode)
        iterator = iter(loader)
        next(iterator)
        loader.close()
        loader.close()
        with pytest.raises(infeed.PipelineError, match="closed"):
            iter(loader)
        with pytest.raises(infeed.PipelineError, match="closed"):
            loader.start()
        with pytest.raises(infeed.PipelineError, match="closed"):
            next(iterator)


def test_a_closed_loader_gives_nothing_more_of_the_steps_that_share_a_slot():
    loader = infeed.Loader(infeed.arrays(np.arange(1000)).batch(2), workers=0)
    iterator = iter(loader)
    next(iterator)
    loader.close()
    with pytest.raises(infeed.PipelineError, match="closed"):
        next(iterator)


def test_a_loader_refuses_epochs_that_are_none():
    with infeed.Loader(fine(), workers=0) as loader:
        for epoch in (-1, 1.5, "next", True):
            with pytest.raises(infeed.PipelineError, match="epoch"):
                loader.set_epoch(epoch)
        for step in (-1, 5, 100):
            with pytest.raises(infeed.PipelineError, match="step"):
                loader.batch_at(0, step)
            with pytest.raises(infeed.PipelineError, match="step"):
                loader.indices_at(0, step)


def locked(index: int, _lock: Any = None) -> Any:
    return as_dict(index)


def unpicklable() -> Any:
    lock = threading.Lock()

    def make(index: int) -> Any:
        with lock:
            return as_dict(index)

    return infeed.source(Items(make)).shuffle(3).batch(8)


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_what_cannot_be_pickled_is_refused_at_construction_where_that_was_asked_for(method):
    with pytest.raises(infeed.PipelineError, match=r"lock.*fork|fork.*lock"):
        infeed.Loader(unpicklable(), workers=2, mode="processes", start_method=method)


def test_what_cannot_be_pickled_is_forked_with_one_word_of_warning():
    with pytest.warns(RuntimeWarning, match="forked") as told:
        given = stream(unpicklable(), workers=2, mode="processes")
    assert len(told) == 1
    assert told[0].filename == stream.__code__.co_filename
    assert given == stream(unpicklable(), workers=0)
    assert given == stream(unpicklable(), workers=2, mode="processes", start_method="fork")


def test_an_unpicklable_setup_is_refused_or_forked_as_a_pipeline_is():
    lock, mapped = threading.Lock(), named().batch(8)

    def setup(worker: int) -> None:
        with lock:
            pass

    with pytest.raises(infeed.PipelineError, match="lock"):
        infeed.Loader(mapped, workers=1, mode="processes", start_method="spawn", worker_setup=setup)
    with pytest.warns(RuntimeWarning, match="forked"):
        given = stream(mapped, workers=1, mode="processes", worker_setup=setup)
    assert given == stream(mapped, workers=0)


def test_workers_that_run_already_refuse_what_cannot_be_pickled_and_go_on():
    with infeed.Workers(1, mode="processes") as workers:
        expected = stream(fine(), workers=0)
        assert stream(fine(), workers=workers) == expected
        with pytest.raises(infeed.PipelineError, match="lock"):
            stream(unpicklable(), workers=workers)
        assert stream(fine(), workers=workers) == expected
