"""Same pipeline, same seed: identical bytes for every mode, worker count and start method."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import infeed
from tests.engine.zoo import IN_THREADS, ZOO, Items, as_dict, frozen, noisy, slow, stream


@functools.cache
def inline(name: str) -> Any:
    return stream(ZOO[name](), workers=0)


@pytest.mark.parametrize("name", ZOO)
def test_inline_gives_the_same_twice_whatever_the_prefetch(name):
    assert stream(ZOO[name](), workers=0, prefetch=5) == inline(name)


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", IN_THREADS)
def test_threads_give_what_inline_gives(name, count):
    assert stream(ZOO[name](), workers=count, mode="threads") == inline(name)


@pytest.mark.parametrize("name", ZOO)
def test_processes_give_what_inline_gives(name):
    assert stream(ZOO[name](), workers=2, mode="processes") == inline(name)


@pytest.mark.parametrize(
    "name", ["arrays", "dict", "rng", "python random", "filter", "shards", "graphs", "map_batch", "lambda"]
)
def test_forked_processes_give_what_inline_gives(name):
    """All others are forked too, from one set of workers, below."""
    assert stream(ZOO[name](), workers=3, mode="processes", start_method="fork") == inline(name)


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_one_set_of_workers_serves_every_kind_of_pipeline(method):
    with infeed.Workers(2, mode="processes", start_method=method) as workers:
        differing = [name for name in ZOO if stream(ZOO[name](), workers=workers) != inline(name)]
    assert not differing


def test_one_set_of_threads_serves_every_kind_of_pipeline():
    with infeed.Workers(2, mode="threads") as workers:
        differing = [name for name in IN_THREADS if stream(ZOO[name](), workers=workers) != inline(name)]
    assert not differing


@pytest.mark.parametrize("name", ["arrays", "dict", "rng", "filter", "graphs", "map_batch"])
def test_auto_gives_what_inline_gives(name):
    assert stream(ZOO[name]()) == inline(name)


@pytest.mark.parametrize(
    "name", ["python random", "numpy random", "torch random", "random source", "random collate"]
)
def test_threads_refuse_global_generators_by_name(name):
    with (
        infeed.Loader(ZOO[name](), workers=2, mode="threads") as loader,
        pytest.raises(infeed.PipelineError, match=r"random|torch"),
    ):
        list(loader)


@pytest.mark.parametrize("name", ["python random", "all randoms", "random source", "random collate"])
def test_inline_work_leaves_the_callers_generators_alone(name):
    import random

    import torch

    with infeed.Loader(ZOO[name](), workers=0) as loader:
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        expected = random.random(), np.random.rand(), torch.rand(1).item()
        random.seed(1), np.random.seed(2), torch.manual_seed(3)
        for _ in loader:
            pass
        assert (random.random(), np.random.rand(), torch.rand(1).item()) == expected


@pytest.mark.parametrize("prefetch", [1, 2, 7, 100])
def test_prefetch_changes_nothing(prefetch):
    assert stream(ZOO["dict"](), workers=2, mode="processes", prefetch=prefetch) == inline("dict")
    assert stream(ZOO["filter"](), workers=2, mode="threads", prefetch=prefetch) == inline("filter")


def test_out_of_order_gives_the_same_batches_in_some_order():
    pipeline = infeed.source(Items(as_dict, 64)).map(slow(0.001)).batch(2)
    given_ = stream(pipeline, workers=3, mode="processes", in_order=False)
    for epoch, expected in zip(given_, stream(pipeline, workers=0), strict=True):
        assert sorted(map(repr, epoch)) == sorted(map(repr, expected))


def test_epochs_differ_and_several_epochs_in_one_for_are_the_same_as_one_by_one():
    pipeline = ZOO["rng"]()
    one_by_one = stream(pipeline, epochs=3, workers=0)
    assert one_by_one[0] != one_by_one[1]
    for mode in ("inline", "threads", "processes"):
        with infeed.Loader(pipeline, workers=2, mode=mode, epochs=3) as loader:
            assert [frozen(batch) for batch in loader] == list(itertools.chain.from_iterable(one_by_one))


def test_a_break_begins_the_next_epoch_as_a_full_epoch_would():
    expected = stream(ZOO["rng"](), epochs=3, workers=0)
    for mode in ("inline", "threads", "processes"):
        with infeed.Loader(ZOO["rng"](), workers=2, mode=mode) as loader:
            for batch in loader:
                assert frozen(batch) == expected[0][0]
                break
            assert [frozen(batch) for batch in loader] == expected[1]
            for _ in zip(range(2), loader, strict=False):
                pass
            loader.set_epoch(1)
            assert [frozen(batch) for batch in loader] == expected[1]


@pytest.mark.parametrize("name", ["rng", "filter with rng", "shards", "plan of ragged", "python random"])
def test_any_batch_can_be_had_again(name):
    expected = inline(name)
    with infeed.Loader(ZOO[name](), workers=0) as loader:
        for epoch, step in ((1, 1), (0, 0), (1, len(expected[1]) - 1)):
            assert frozen(loader.batch_at(epoch, step)) == expected[epoch][step]


@st.composite
def plans(draw: Any) -> tuple[infeed.Plan, str, int]:
    plan = infeed.Plan(
        draw(st.integers(1, 4)),
        accumulate=draw(st.integers(1, 3)),
        replicas=draw(st.integers(1, 3)),
        iterations=draw(st.integers(1, 3)),
    )
    last = draw(st.sampled_from(["keep", "drop", "wrap"]))
    least = plan.samples_per_step if last == "drop" else 1
    return plan, last, draw(st.integers(least, least + 60))


def test_any_plan_gives_the_same_in_every_mode():
    with infeed.Workers(2, mode="processes") as processes, infeed.Workers(2, mode="threads") as threads:

        @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
        @given(plans(), st.integers(0, 5), st.sampled_from(["stack", "pad", "concat", "list"]), st.booleans())
        def check(planned: Any, seed: int, collate: str, mapped: bool) -> None:
            plan, last, count = planned
            pipeline = infeed.source(Items(as_dict, count)).shuffle(seed).map(noisy)
            pipeline = pipeline.select("x", "y").batch(plan, last=last, collate=collate)
            pipeline = pipeline.map_batch(lambda batch: batch) if mapped else pipeline
            expected = stream(pipeline, workers=0)
            assert len(expected[0]) == len(pipeline)
            assert stream(pipeline, workers=threads) == expected
            assert stream(pipeline, workers=processes) == expected

        check()


def test_the_global_step_is_the_ranks_shares_laid_together():
    @settings(max_examples=60, deadline=None)
    @given(plans(), st.integers(0, 3), st.sampled_from(["arrays", "filter", "iterable"]))
    def check(planned: Any, seed: int, kind: str) -> None:
        plan, last, count = planned
        if last == "keep" or (kind != "arrays" and last == "wrap"):
            last = "drop"
        if kind == "arrays":
            samples = infeed.arrays(y=np.arange(count)).shuffle(seed)
        elif kind == "filter":
            samples = infeed.arrays(y=np.arange(count)).shuffle(seed).filter(lambda sample: sample["y"] % 4)
        else:
            samples = infeed.iterable(lambda: ({"y": i} for i in range(count)))
        if kind == "arrays" and last == "drop" and count < plan.samples_per_step:
            return
        shares = []
        for replica in range(plan.replicas):
            mine = infeed.Plan(plan.micro_batch, plan.accumulate, plan.replicas, replica, plan.iterations)
            with infeed.Loader(samples.batch(mine, last=last), workers=0) as loader:
                shares.append([batch["y"].copy() for batch in loader])
        with infeed.Loader(samples.batch(plan, last=last), workers=0) as loader:
            steps = [batch["y"].copy() for batch in loader]
        assert {len(share) for share in shares} == {len(steps)}
        for number, step in enumerate(steps):
            parts = [share[number].reshape(-1, plan.micro_batch) for share in shares]
            assert {part.size for part in parts} == {plan.rows_per_step // plan.replicas}
            assert np.array_equal(np.stack(parts, axis=1).ravel(), step)

    check()


def test_keeping_a_short_step_is_refused_where_replicas_would_get_unequal_ones():
    rank = infeed.Plan(2, replicas=2, replica=0)
    with pytest.raises(infeed.PipelineError, match="unequal"):
        infeed.arrays(np.arange(9)).batch(rank)
    with pytest.raises(infeed.PipelineError, match="unequal"):
        infeed.arrays(np.arange(9)).filter(bool).batch(rank)
    assert len(infeed.arrays(np.arange(12)).batch(rank)) == 3


def test_split_walks_the_step_in_views():
    plan = infeed.Plan(2, accumulate=2, replicas=3, iterations=2)
    with infeed.Loader(infeed.arrays(x=np.arange(48)).batch(plan), workers=2, mode="processes") as loader:
        for step, batch in enumerate(loader):
            walked = list(plan.split(batch))
            assert [tuple(micro[:3]) for micro in walked] == [
                (i, a, r) for i in range(2) for a in range(2) for r in range(3)
            ]
            assert all(np.shares_memory(micro.batch["x"], batch["x"]) for micro in walked)
            assert np.concatenate([m.batch["x"] for m in walked]).tolist() == list(range(24 * step, 24 * step + 24))
