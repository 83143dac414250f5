"""Resume at any step, on any worker or replica count, continues the same stream."""

from __future__ import annotations

import itertools
import json
import pickle
from typing import Any

import numpy as np
import pytest

import infeed
from tests.engine.zoo import ZOO, fail_at, frozen, named, noisy, stream

OTHERS = [{"workers": 0}, {"workers": 2, "mode": "threads"}, {"workers": 1, "mode": "threads", "prefetch": 1}]
INDEXED = [
    "arrays",
    "rng",
    "graphs",
    "plan of ragged",
    "weighted",
    "block shuffle",
    "given order",
    "wrapped",
    "views",
]
SCANNED = [
    "filter",
    "filter with rng",
    "filters, dropped",
    "iterable",
    "iterable, maps",
    "shards",
    "iterable with state",
]
PROCESSES = {"workers": 2, "mode": "processes"}


def after(pipeline: Any, count: int, **settings: Any) -> dict[str, Any]:
    """The state of a loader after so many batches."""
    with infeed.Loader(pipeline, **settings) as loader:
        iterator = iter(loader)
        for _ in range(count):
            next(iterator)
        return loader.state_dict()


def rest(pipeline: Any, state: Any, epochs: int, **settings: Any) -> list[list[Any]]:
    """What comes after a state, epoch by epoch."""
    with infeed.Loader(pipeline, **settings) as loader:
        loader.load_state_dict(state)
        return [[frozen(batch) for batch in loader] for _ in range(epochs)]


@pytest.mark.parametrize("name", INDEXED + SCANNED)
def test_resume_at_every_step_continues_the_same_stream(name):
    pipeline = ZOO[name]()
    expected = stream(pipeline, epochs=3, workers=0)
    settings = itertools.cycle(OTHERS)
    for step in range(len(expected[0]) + 1):
        state = after(pipeline, step, **next(settings))
        last = step == len(expected[0])
        wanted = [expected[1], expected[2]] if last else [expected[0][step:], expected[1]]
        assert rest(pipeline, state, 2, **next(settings)) == wanted, f"step {step}"


@pytest.mark.parametrize("name", ["rng", "graphs", "filter with rng", "shards", "iterable with state"])
def test_resume_with_processes_continues_the_same_stream(name):
    pipeline = ZOO[name]()
    expected = stream(pipeline, epochs=2, workers=0)
    for step in (1, len(expected[0]) - 1, len(expected[0])):
        wanted = [expected[0][step:], expected[1]] if step < len(expected[0]) else [expected[1]]
        assert rest(pipeline, after(pipeline, step, **PROCESSES), len(wanted), workers=0) == wanted
        assert rest(pipeline, after(pipeline, step, workers=0), len(wanted), **PROCESSES) == wanted


@pytest.mark.parametrize("name", INDEXED + SCANNED)
def test_a_resume_of_a_resume_continues_the_same_stream(name):
    pipeline = ZOO[name]()
    expected = list(itertools.chain.from_iterable(stream(pipeline, epochs=3, workers=0)))
    given, state = [], None
    while len(given) < len(expected):
        with infeed.Loader(pipeline, workers=0) as loader:
            if state is not None:
                loader.load_state_dict(state)
            iterator = iter(loader)
            for _ in range(2):
                try:
                    given.append(frozen(next(iterator)))
                except StopIteration:
                    break
            state = loader.state_dict()
    assert given[: len(expected)] == expected


@pytest.mark.parametrize("name", ["rng", "filter with rng", "shards"])
def test_an_endless_loader_is_resumed_across_the_ends_of_epochs(name):
    pipeline = ZOO[name]()
    expected = list(itertools.chain.from_iterable(stream(pipeline, epochs=5, workers=0)))
    for count in range(0, len(expected) - 6, 3):
        state = after(pipeline, count, workers=0, epochs=None)
        with infeed.Loader(pipeline, workers=2, mode="threads", epochs=None) as loader:
            loader.load_state_dict(state)
            assert [frozen(batch) for batch in itertools.islice(loader, 6)] == expected[count : count + 6]


def test_several_epochs_in_one_for_are_resumed_and_end_where_they_would_have():
    pipeline = ZOO["rng"]()
    expected = list(itertools.chain.from_iterable(stream(pipeline, epochs=3, workers=0)))
    for count in range(1, len(expected)):
        state = after(pipeline, count, workers=0, epochs=3)
        with infeed.Loader(pipeline, workers=2, mode="threads", epochs=3) as loader:
            loader.load_state_dict(state)
            assert [frozen(batch) for batch in loader] == expected[count:]


@pytest.mark.parametrize("name", ["rng", "filter", "iterable with state"])
def test_a_state_survives_json_and_pickle(name):
    pipeline = ZOO[name]()
    state = after(pipeline, 2, workers=0)
    expected = rest(pipeline, state, 1, workers=0)
    assert rest(pipeline, json.loads(json.dumps(state)), 1, workers=0) == expected
    assert rest(pipeline, pickle.loads(pickle.dumps(state)), 1, workers=0) == expected


def test_the_state_counts_what_was_received_not_what_was_prepared():
    for settings in (*OTHERS, PROCESSES):
        with infeed.Loader(
            ZOO["rng"](), prefetch=4, **{k: v for k, v in settings.items() if k != "prefetch"}
        ) as loader:
            iterator = iter(loader)
            states = [loader.state_dict()]
            for _ in range(3):
                next(iterator)
                states.append(loader.state_dict())
        assert [state["position"] for state in states] == [0, 8, 16, 24]


def test_a_loader_may_go_back_to_a_state_of_its_own():
    expected = stream(ZOO["rng"](), epochs=2, workers=0)
    for settings in (*OTHERS, PROCESSES):
        with infeed.Loader(ZOO["rng"](), **settings) as loader:
            iterator = iter(loader)
            next(iterator), next(iterator)
            state = loader.state_dict()
            assert [frozen(batch) for batch in iterator] == expected[0][2:]
            loader.load_state_dict(state)
            assert [frozen(batch) for batch in loader] == expected[0][2:]
            assert [frozen(batch) for batch in loader] == expected[1]


def test_the_state_of_a_loader_that_has_just_loaded_one_is_the_same():
    for name in ("rng", "filter", "shards"):
        state = after(ZOO[name](), 2, workers=0)
        with infeed.Loader(ZOO[name](), workers=0) as loader:
            loader.load_state_dict(state)
            again = loader.state_dict()
            assert rest(ZOO[name](), again, 2, workers=0) == rest(ZOO[name](), state, 2, workers=0)
            loader.start()
            again = loader.state_dict()
            assert rest(ZOO[name](), again, 2, workers=0) == rest(ZOO[name](), state, 2, workers=0)


def test_a_state_taken_after_a_break_begins_the_step_after():
    expected = stream(ZOO["rng"](), epochs=2, workers=0)
    with infeed.Loader(ZOO["rng"](), workers=0) as loader:
        for step, _ in enumerate(loader):
            if step == 2:
                break
        state = loader.state_dict()
    assert rest(ZOO["rng"](), state, 2, workers=0) == [expected[0][3:], expected[1]]


@pytest.mark.parametrize("kind", ["arrays", "filter", "iterable"])
def test_a_stream_goes_on_with_another_number_of_replicas(kind):
    def samples() -> Any:
        if kind == "iterable":
            return infeed.iterable(lambda: ({"y": i, "x": np.zeros(2, np.float32)} for i in range(100))).map(noisy)
        made = infeed.arrays(y=np.arange(100), x=np.zeros((100, 2), np.float32)).shuffle(3).map(noisy)
        return made.filter(lambda sample: sample["y"] % 5) if kind == "filter" else made

    whole = infeed.Plan(12)
    expected = stream(samples().batch(whole, drop_last=True), workers=0)
    ranks = [infeed.Plan(3, accumulate=2, replicas=2, replica=rank) for rank in range(2)]
    state = after(samples().batch(ranks[1], drop_last=True), 3, workers=0)
    assert rest(samples().batch(whole, drop_last=True), state, 2, workers=0) == [expected[0][3:], expected[1]]
    state = after(samples().batch(whole, drop_last=True), 2, workers=2, mode="threads")
    for rank in ranks:
        whole_run = stream(samples().batch(rank, drop_last=True), workers=0)
        assert rest(samples().batch(rank, drop_last=True), state, 2, workers=0) == [whole_run[0][2:], whole_run[1]]


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (lambda: named().shuffle(8).map(noisy).batch(8), "seed"),
        (lambda: named().take(30).shuffle(7).map(noisy).batch(8), "30"),
        (lambda: named().map(noisy).batch(8), "order"),
        (lambda: named().shuffle(7).batch(8), "noisy"),
        (lambda: named().shuffle(7).map(noisy).batch(4), "global batch"),
        (lambda: named().shuffle(7).map(noisy).batch(8, drop_last=True), "last"),
        (lambda: named().shuffle(7).map(noisy).batch(8).map_batch(len), "map_batch"),
        (lambda: named().shuffle(7, block=4).map(noisy).batch(8), "order"),
    ],
)
def test_a_state_of_another_pipeline_is_refused_saying_what_differs(other, told):
    pipeline = named().shuffle(7).map(noisy).batch(8)
    state = after(pipeline, 1, workers=0)
    with infeed.Loader(other(), workers=0) as loader, pytest.raises(infeed.StateError, match=told):
        loader.load_state_dict(state)


@pytest.mark.parametrize("nonsense", [None, {}, 7, {"epoch": 3}, [1], {"infeed": 99}, {"infeed": 1}])
def test_what_is_no_state_is_refused(nonsense):
    with infeed.Loader(ZOO["rng"](), workers=0) as loader, pytest.raises(infeed.StateError):
        loader.load_state_dict(nonsense)


def test_a_state_between_the_steps_of_another_plan_is_refused():
    state = after(named().batch(infeed.Plan(4, iterations=1)), 1, workers=0)
    with (
        infeed.Loader(named().batch(infeed.Plan(4, iterations=2)), workers=0) as loader,
        pytest.raises(infeed.StateError, match="iterations"),
    ):
        loader.load_state_dict(state)


def test_a_step_that_raised_counts_as_received():
    pipeline = named().map(fail_at(9)).batch(8)
    expected = stream(named().batch(8), epochs=1, workers=0)[0]
    with infeed.Loader(pipeline, workers=0) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(ZeroDivisionError):
            next(iterator)
        state = loader.state_dict()
    assert rest(pipeline, state, 1, workers=0) == [expected[2:]]
