"""How mode and number of workers are chosen."""

import numpy as np
import pytest

import infeed
from infeed import automatic, cores
from infeed.automatic import Wishes, decide
from infeed.streaming import Counters


class Slow:
    """Takes a good while for each sample, in Python."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        return sum(range(20_000)) + index


def chosen(pipeline, **wishes):
    settings = {"mode": "auto", "count": None, "thread_safe": False, **wishes}
    return decide(pipeline.recipe(), pipeline.chain(), 0, 0, Wishes(**settings))


def test_a_gather_smaller_than_a_hand_over_stays_inline():
    assert chosen(infeed.arrays(np.zeros((100, 4))).batch(10)).mode == "inline"


def test_large_gathers_get_threads_where_there_are_cores(monkeypatch):
    monkeypatch.setattr(cores, "available", lambda: 4)
    decision = chosen(infeed.arrays(np.zeros((100, 40_000))).batch(10))
    assert (decision.mode, decision.count) == ("threads", 4)
    monkeypatch.setattr(cores, "available", lambda: 1)
    assert chosen(infeed.arrays(np.zeros((100, 40_000))).batch(10)).mode == "inline"


def test_slow_python_gets_processes_and_the_reason_says_what_it_costs(monkeypatch):
    monkeypatch.setattr(cores, "available", lambda: 3)
    decision = chosen(infeed.source(Slow()).batch(16))
    assert (decision.mode, decision.count) == ("processes", 3)
    assert "a sample takes" in decision.reason


def test_user_code_gets_threads_only_when_they_say_it_is_safe():
    assert chosen(infeed.source(Slow()).batch(16), thread_safe=True).mode == "threads"


def test_what_the_user_has_fixed_stays_fixed():
    assert chosen(infeed.source(Slow()).batch(16), mode="threads").mode == "threads"
    assert chosen(infeed.source(Slow()).batch(16), count=7).count == 7


def test_samples_that_raise_are_left_to_the_loop():
    decision = chosen(infeed.source([1, 2, 3]).map(lambda sample: 1 / 0).batch(2))
    assert decision.mode == "inline"
    failing = infeed.source([1, 2, 3]).map(lambda sample: 1 / 0).batch(2)
    with infeed.Loader(failing) as loader, pytest.raises(ZeroDivisionError):
        next(iter(loader))


def test_the_samples_that_were_timed_are_not_made_twice():
    calls = []

    class Counting:
        def __len__(self):
            return 200

        def __getitem__(self, index):
            calls.append(index)
            return index

    with infeed.Loader(infeed.source(Counting()).batch(100), workers="auto", mode="auto") as loader:
        batches = list(loader)
    assert [batch.tolist() for batch in batches] == [list(range(100)), list(range(100, 200))]
    assert len(calls) == len(set(calls))


def test_a_tentative_choice_is_settled_by_what_a_few_steps_cost():
    pipeline = infeed.arrays(np.zeros((1000, 10))).batch(10).map_batch(lambda batch: batch)
    recipe, wishes = pipeline.recipe(), Wishes("auto", None, thread_safe=False)
    assert chosen(pipeline).tentative
    counters = Counters()
    assert automatic.settle(recipe, counters, 800, wishes) is None
    counters.tasks, counters.seconds, counters.cpu, counters.per_row = 20, 1.0, 1.0, 1e-7
    assert automatic.settle(recipe, counters, 800, wishes).mode == "inline"
    counters.per_row = 1e-3
    assert automatic.settle(recipe, counters, 800, wishes).mode == "processes"
    counters.per_row = 1e-4
    assert "copying" in automatic.settle(recipe, counters, 10**8, wishes).reason


def test_the_stream_is_the_same_when_workers_take_over_from_the_loop():
    pipeline = infeed.source(Slow()).shuffle(seed=1).batch(2, collate=list).map_batch(lambda batch: batch)
    with infeed.Loader(pipeline, workers=0) as loader:
        expected = [list(batch) for _ in range(2) for batch in loader]
    with infeed.Loader(pipeline) as loader:
        found = [list(batch) for _ in range(2) for batch in loader]
        assert "processes" in loader.decision
    assert found == expected


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({"cpu.max": "200000 100000"}, 2.0),
        ({"cpu.max": "max 100000"}, float("inf")),
        ({"cpu/cpu.cfs_quota_us": "150000", "cpu/cpu.cfs_period_us": "100000"}, 1.5),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, float("inf")),
        ({}, float("inf")),
    ],
)
def test_the_quota_of_either_kind_of_control_group_is_read(tmp_path, files, wanted):
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert cores.quota(tmp_path) == wanted


def test_cores_are_divided_among_the_ranks_of_the_machine(tmp_path, monkeypatch):
    monkeypatch.setattr(cores.os, "sched_getaffinity", lambda _: set(range(16)))
    assert cores.available({}, tmp_path) == 16
    assert cores.available({"LOCAL_WORLD_SIZE": "4"}, tmp_path) == 4
    assert cores.available({"LOCAL_WORLD_SIZE": "nonsense"}, tmp_path) == 16
    (tmp_path / "cpu.max").write_text("300000 100000")
    assert cores.available({}, tmp_path) == 3


def test_too_little_memory_for_one_step_is_told_at_construction():
    pipeline = infeed.arrays(np.zeros((100, 1000))).batch(100)
    with pytest.raises(infeed.OutOfMemory, match="smaller batch"):
        infeed.Loader(pipeline, memory_limit=1000)
