"""The invariants over pipelines, plans, topologies and schedules of deaths that nobody thought of."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import infeed
from tests.engine.test_deaths import kill, someone
from tests.engine.zoo import Items, frozen, slow, stream

BOUNDED = {
    "deadline": None,
    "suppress_health_check": list(HealthCheck),
    "derandomize": True,
    "phases": [Phase.explicit, Phase.generate],  # to shrink costs minutes, and the spec is small as it is
}
TOPOLOGIES = {
    "thread": {"count": 1, "mode": "threads"},
    "threads": {"count": 3, "mode": "threads"},
    "forkserver": {"count": 2, "mode": "processes"},
    "fork": {"count": 1, "mode": "processes", "start_method": "fork"},
    "spawn": {"count": 3, "mode": "processes", "start_method": "spawn"},
}


@dataclass(frozen=True)
class Spec:
    """A pipeline, in words that hypothesis can vary and print."""

    kind: str
    count: int
    width: int
    seed: int
    ragged: bool
    collate: str
    mapped: str
    plan: infeed.Plan
    last: str

    def samples(self) -> Any:
        """The pipeline up to its batches."""
        if self.kind == "iterable":
            made = infeed.iterable(Shards(self), shards=2)
        elif self.kind == "arrays":
            x = np.arange(self.count * self.width, dtype=np.float32).reshape(self.count, self.width)
            made = infeed.arrays(x=x, y=np.arange(self.count)).shuffle(self.seed)
        else:
            made = infeed.source(Items(self.sample, self.count)).shuffle(self.seed)
        if self.kind == "filter":
            made = made.filter(some)
        return made if self.kind == "arrays" else made.map(noise)

    def sample(self, index: int) -> Any:
        """One sample of those that are made one by one."""
        rows = index % 4 + 1 if self.ragged else 2
        x = np.full((rows, self.width), index, np.float32)
        return {"x": x, "z": -x, "y": index, "s": "s" * (index % 3)}

    def pipeline(self) -> Any:
        """The whole of it."""
        batched = self.samples().batch(self.plan, last=self.last, collate=self.collate)
        return batched.map_batch(MAPS[self.mapped]) if self.mapped else batched


class Shards:
    """Two shards of unequal length."""

    def __init__(self, spec: Spec):
        self.spec = spec

    def __call__(self, shard: int) -> Iterator[Any]:
        third = self.spec.count // 3
        return map(self.spec.sample, range(third) if shard == 0 else range(third, self.spec.count))


def some(sample: Any, rng: Any) -> bool:
    return bool(rng.random() < 0.7)


def noise(sample: Any, rng: Any) -> Any:
    return {**sample, "x": sample["x"] + rng.random(sample["x"].shape, np.float32)}


MAPS = {
    "turned": lambda batch: dict(reversed(list(batch.items()))),
    "sums": lambda batch: {"sum": np.full(700, np.sum(batch["y"])), "y": batch["y"]},
    "noisy": lambda batch, rng: {**batch, "r": rng.random(3)},
}


@st.composite
def specs(draw: Any) -> Spec:
    kind = draw(st.sampled_from(["arrays", "items", "filter", "iterable"]))
    collate = draw(st.sampled_from(["stack", "pad", "concat", "list"]))
    ragged = collate != "stack" and kind != "arrays" and draw(st.booleans())
    last = draw(st.sampled_from(["keep", "drop"] if kind in ("filter", "iterable") else ["keep", "drop", "wrap"]))
    replicas = draw(st.integers(1, 3))
    replica = draw(st.sampled_from([None, *range(replicas)])) if last != "keep" else None
    plan = infeed.Plan(
        draw(st.sampled_from([1, 3, 20, 40])), draw(st.integers(1, 2)), replicas, replica, draw(st.integers(1, 2))
    )
    least = plan.samples_per_step if last == "drop" else 1
    count = least + draw(st.integers(0, 90))
    width = draw(st.sampled_from([0, 3, 60, 200]))
    return Spec(
        kind, count, width, draw(st.integers(0, 5)), ragged, collate, draw(st.sampled_from(["", *MAPS])), plan, last
    )


@contextmanager
def crews(*names: str) -> Iterator[dict[str, Any]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(infeed.Workers(**TOPOLOGIES[name])) for name in names}


def test_identical_bytes_over_pipelines_modes_counts_start_methods_and_plans():
    with crews(*TOPOLOGIES) as workers:

        @settings(max_examples=50, **BOUNDED)
        @given(
            specs(),
            st.lists(st.sampled_from(list(TOPOLOGIES)), min_size=2, max_size=3),
            st.sampled_from([None, 1, 9]),
        )
        def check(spec: Spec, names: list[str], prefetch: int | None) -> None:
            expected = stream(spec.pipeline(), workers=0)
            for name in names:
                assert stream(spec.pipeline(), workers=workers[name], prefetch=prefetch) == expected, name

        check()


def test_exactly_once_under_any_schedule_of_deaths():
    with crews("forkserver", "spawn") as workers:

        @settings(max_examples=12, **BOUNDED)
        @given(specs(), st.sampled_from(["forkserver", "forkserver", "spawn"]), st.integers(0, 1 << 30))
        def check(spec: Spec, name: str, seed: int) -> None:
            expected = stream(spec.pipeline(), workers=0)
            crew, done, chance = workers[name].crew(), threading.Event(), random.Random(seed)

            def assassin() -> None:
                for _ in range(3):
                    if not done.wait(0.12 * chance.random()):
                        kill(someone(crew, chance, helper=0.3))

            thread = threading.Thread(target=assassin)
            thread.start()
            try:
                assert stream(spec.pipeline(), workers=workers[name], timeout=20) == expected
            finally:
                done.set()
                thread.join()

        check()


def test_a_kept_batch_never_changes():
    """A random choice of batches is kept for a random time, in every mode."""
    with crews("threads", "forkserver") as workers:

        @settings(max_examples=24, **BOUNDED)
        @given(specs(), st.sampled_from([0, "threads", "forkserver"]), st.integers(0, 1 << 30))
        def check(spec: Spec, name: Any, seed: int) -> None:
            chance = random.Random(seed)
            kept: list[Any] = []
            with infeed.Loader(spec.pipeline(), workers=workers[name] if name else 0) as loader:
                for batch in itertools.chain.from_iterable(loader for _ in range(4)):
                    kept.append((batch, frozen(batch)))
                    del batch
                    while kept and chance.random() < 0.45:
                        del kept[chance.randrange(len(kept))]
                    assert all(frozen(held) == before for held, before in kept)

        check()


@pytest.mark.parametrize("kind", ["items", "filter", "iterable"])
def test_resume_at_every_step_with_one_two_and_again_one_replica(kind):
    """The global batch stays; who gets which share of it changes twice."""
    plans = [infeed.Plan(4, accumulate=3), *(infeed.Plan(3, 2, 2, rank) for rank in range(2))]

    def made(who: int) -> Any:
        return Spec(kind, 61, 3, 1, False, "stack", "", plans[who], "drop").pipeline()

    whole = [stream(made(who), epochs=3, workers=0) for who in range(3)]
    assert len({tuple(map(len, epochs)) for epochs in whole}) == 1
    order = [(epoch, step) for epoch in range(3) for step in range(len(whole[0][epoch]))]

    def go_on(who: int, state: Any, begin: int, end: int, workers: Any) -> Any:
        """Check the batches from `begin` to `end`, and return the state after them."""
        with infeed.Loader(made(who), epochs=None, workers=workers) as loader:
            if begin:
                loader.load_state_dict(state)
            received = [frozen(batch) for batch in itertools.islice(loader, end - begin)]
            assert received == [whole[who][epoch][step] for epoch, step in order[begin:end]], (who, begin)
            return loader.state_dict()

    with crews("threads", "forkserver") as workers:
        topologies = itertools.cycle([0, workers["threads"], workers["forkserver"]])
        for first in range(1, len(order) - 4):
            second = first + 1 + first % 3
            alone = go_on(0, None, 0, first, next(topologies))
            shared = [go_on(who, alone, first, second, next(topologies)) for who in (1, 2)]
            assert shared[0] == shared[1]
            go_on(0, shared[first % 2], second, len(order), next(topologies))


@pytest.mark.parametrize("kind", ["items", "filter", "iterable"])
def test_bad_samples_are_replaced_or_left_out_the_same_in_every_mode(kind):
    with crews("threads", "forkserver") as workers:

        @settings(max_examples=8, **BOUNDED)
        @given(st.sets(st.integers(0, 50), max_size=12), st.sampled_from([1, 4, 9]), st.integers(0, 3))
        def check(bad: set[int], size: int, seed: int) -> None:
            def failing(sample: Any) -> Any:
                if sample["y"] in bad:
                    raise ZeroDivisionError(sample["y"])
                return sample

            spec = Spec(kind, 51, 3, seed, False, "stack", "", infeed.Plan(size), "keep")
            pipeline = spec.samples().map(failing)
            if kind == "filter":
                pipeline = pipeline.filter(lambda sample: sample["y"] % 10)
            given_ = {}
            for name in (0, "threads", "forkserver"):
                crew = workers[name] if name else 0
                with infeed.Loader(pipeline.batch(size), workers=crew, on_error="replace") as loader:
                    batches = [frozen(batch) for _ in range(2) for batch in loader]
                    seen = sorted((one.epoch, one.index) for one in loader.bad_samples)
                    given_[name] = batches, [one for one in seen if one[0] < 2]
            assert given_["threads"] == given_[0] == given_["forkserver"]
            with infeed.Loader(pipeline.batch(size), workers=0, on_error="replace") as loader:
                ys = np.concatenate([batch["y"] for batch in loader]).tolist() if len(bad) < 51 else []
            assert not bad & set(ys)
            if kind == "items":
                assert len(ys) == 51
                assert set(ys) == set(range(51)) - bad
            elif kind == "iterable":
                assert sorted(ys) == sorted(set(range(51)) - bad)

        check()


def test_slow_and_quick_samples_in_any_mixture_keep_their_order():
    pipeline = infeed.source(range(60)).map(Uneven()).batch(3)
    expected = stream(pipeline, workers=0)
    with crews("threads", "forkserver") as workers:
        for name in ("threads", "forkserver"):
            assert stream(pipeline, workers=workers[name]) == expected


class Uneven:
    """Every ninth sample takes long."""

    def __call__(self, sample: int) -> int:
        return int(slow(0.01)(sample)) if sample % 9 == 4 else sample
