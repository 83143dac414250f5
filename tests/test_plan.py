"""Plans: the sizes of a step, its positions, and the walk over its micro-batches."""

import dataclasses
import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import LayoutError, PipelineError
from infeed.plan import MicroBatches, Plan

small = st.integers(1, 4)
plans = st.builds(Plan, small, accumulate=small, replicas=small, iterations=small)
lasts = st.sampled_from(["keep", "drop", "wrap"])


def ranks_of(plan):
    return [dataclasses.replace(plan, replica=replica) for replica in range(plan.replicas)]


def test_the_sizes_of_a_step_multiply():
    plan = Plan(16, accumulate=2, replicas=4, iterations=50)
    assert (plan.replica_batch, plan.global_batch, plan.samples_per_step) == (32, 128, 6400)
    assert (plan.rows_per_step, plan.micro_batches_per_step, plan.is_contiguous) == (6400, 400, True)
    rank = dataclasses.replace(plan, replica=3)
    assert (rank.samples_per_step, rank.rows_per_step, rank.micro_batches_per_step) == (6400, 1600, 100)
    assert not rank.is_contiguous
    assert Plan(4, replicas=1, replica=0).is_contiguous


@pytest.mark.parametrize("name", ["micro_batch", "accumulate", "replicas", "iterations"])
@pytest.mark.parametrize("value", [0, -1, 1.5, True, None, "4"])
def test_a_size_that_is_no_count_is_refused_by_name(name, value):
    with pytest.raises(PipelineError, match=f"{name} is"):
        Plan(**{"micro_batch": 4, name: value})


@pytest.mark.parametrize("replica", [4, -1, 1.0, True])
def test_a_replica_that_does_not_exist_is_refused(replica):
    with pytest.raises(PipelineError, match="replica"):
        Plan(4, replicas=4, replica=replica)


def test_numpy_integers_become_plain_ones():
    plan = Plan(np.int64(4), replicas=np.int32(2), replica=np.int8(1))
    assert plan == Plan(4, replicas=2, replica=1)
    assert type(plan.samples_per_step) is int
    assert pickle.loads(pickle.dumps(plan)) == plan


@given(plans, st.integers(1, 600), lasts)
def test_the_steps_of_an_epoch_cover_its_positions_in_order(plan, n, last):
    steps = [plan.positions(step, n, last) for step in range(plan.steps(n, last))]
    full = plan.samples_per_step
    wanted = {"keep": n, "drop": n // full * full, "wrap": -(-n // full) * full}[last]
    assert [int(position) for step in steps for position in step] == list(range(wanted))
    assert [len(step) for step in steps] == [plan.rows(step, n, last) for step in range(len(steps))]


@given(plans, st.integers(1, 600), lasts)
def test_the_shares_of_the_ranks_are_disjoint_complete_and_equal(plan, n, last):
    for step in range(plan.steps(n, last)):
        shares = [rank.positions(step, n, last) for rank in ranks_of(plan)]
        assert sorted(np.concatenate(shares)) == plan.positions(step, n, last).tolist()
        assert [len(share) for share in shares] == [rank.rows(step, n, last) for rank in ranks_of(plan)]
        if last != "keep":
            assert {len(share) for share in shares} == {plan.samples_per_step // plan.replicas}


@given(plans, st.integers(1, 600))
def test_keep_is_refused_exactly_where_replicas_would_get_unequal_steps(plan, n):
    steps = range(plan.steps(n, "keep"))
    equal = all(len({rank.rows(step, n, "keep") for rank in ranks_of(plan)}) == 1 for step in steps)
    plan.check(n, "keep")
    for rank in ranks_of(plan):
        if equal:
            rank.check(n, "keep")
        else:
            with pytest.raises(PipelineError, match=r"unequal steps.*last='drop'.*last='wrap'"):
                rank.check(n, "keep")
        rank.check(n, "wrap")


def test_a_plan_that_yields_nothing_is_refused():
    with pytest.raises(PipelineError, match="no samples"):
        Plan(4).check(0, "wrap")
    with pytest.raises(PipelineError, match="a step takes 8 samples and there are 7"):
        Plan(4, replicas=2).check(7, "drop")
    Plan(4, replicas=2).check(8, "drop")


def test_a_word_for_the_last_step_that_is_none_is_refused():
    with pytest.raises(PipelineError, match="'keep', 'drop' or 'wrap'"):
        Plan(4).check(10, "pad")


@pytest.mark.parametrize("step", [-1, 3])
def test_a_step_beyond_the_epoch_is_refused(step):
    with pytest.raises(PipelineError, match="has 3 of this plan"):
        Plan(4).positions(step, 10, "keep")
    with pytest.raises(PipelineError, match="has 3 of this plan"):
        Plan(4).rows(step, 10, "keep")


@given(plans, st.integers(1, 600), lasts)
def test_a_split_walks_iterations_accumulation_steps_replicas_and_rows(plan, n, last):
    for step in range(plan.steps(n, last)):
        start = step * plan.samples_per_step
        for loader in [plan, *ranks_of(plan)]:
            rows = loader.positions(step, n, last)
            micros = list(loader.split({"position": rows}))
            assert np.array_equal(np.concatenate([m.batch["position"] for m in micros] or [[]]), rows)
            for i, a, r, batch in micros:
                first = start + ((i * plan.accumulate + a) * plan.replicas + r) * plan.micro_batch
                here = batch["position"]
                assert here.tolist() == list(range(first, first + len(here)))
                assert loader.replica in (None, r)


class Pair(NamedTuple):
    left: Any
    right: Any


@dataclasses.dataclass
class Item:
    x: Any
    names: Any


def test_a_split_looks_into_the_batch_and_copies_nothing():
    batch = Pair({"x": np.zeros((4, 3))}, Item(np.arange(4), list("abcd")))
    first, second = Plan(2, accumulate=2).split(batch)
    assert isinstance(second.batch, Pair)
    assert isinstance(second.batch.right, Item)
    assert np.shares_memory(second.batch.left["x"], batch.left["x"])
    assert second.batch.right.x.tolist() == [2, 3]
    assert (first.batch.right.names, second.batch.right.names) == (["a", "b"], ["c", "d"])
    assert [tuple(micro[:3]) for micro in (first, second)] == [(0, 0, 0), (0, 1, 0)]


def test_a_short_step_gives_fewer_and_shorter_micro_batches():
    micros = list(Plan(4, accumulate=3).split(np.arange(6)))
    assert [micro.batch.tolist() for micro in micros] == [[0, 1, 2, 3], [4, 5]]


def test_a_list_of_columns_is_structure_and_a_list_of_rows_is_a_column():
    columns, names = [np.arange(4), np.arange(4) * 10], ["a", "b", "c", "d"]
    ragged = [np.zeros(1), np.zeros(2), np.zeros(3), np.zeros(4)]
    *_, second = Plan(2, accumulate=2).split({"columns": columns, "names": names, "ragged": ragged})
    assert [column.tolist() for column in second.batch["columns"]] == [[2, 3], [20, 30]]
    assert second.batch["names"] == ["c", "d"]
    assert [row.size for row in second.batch["ragged"]] == [3, 4]
    assert [micro.batch for micro in Plan(2, accumulate=2).split(names)] == [["a", "b"], ["c", "d"]]


def test_micro_batches_made_one_by_one_are_walked_as_they_are():
    made = MicroBatches([{"x": np.zeros(5)}, {"x": np.zeros(9)}, {"x": np.zeros(2)}])
    micros = list(Plan(3, accumulate=2, replicas=2).split(made))
    assert [tuple(micro[:3]) for micro in micros] == [(0, 0, 0), (0, 0, 1), (0, 1, 0)]
    assert all(micro.batch is batch for micro, batch in zip(micros, made, strict=True))
    own = MicroBatches(made[:2])
    assert [m[:3] for m in Plan(3, accumulate=2, replicas=2, replica=1).split(own)] == [(0, 0, 1), (0, 1, 1)]
    copy = pickle.loads(pickle.dumps(own))
    assert type(copy) is MicroBatches


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"x": np.zeros(4), "scale": 2.0}, "field 'scale' of the batch is of type float"),
        ({"x": np.zeros(4), "scale": np.array(2.0)}, "field 'scale'"),
        ({"x": np.zeros(4), "name": "abcd"}, "field 'name' of the batch is of type str"),
        ({"x": np.zeros(4), "y": (np.zeros(3),)}, r"'x' of the batch has 4 rows and field 'y.0' has 3"),
        ({}, "no fields"),
        (np.zeros(9), "9 rows"),
        (MicroBatches([1, 2, 3]), "3 micro-batches"),
    ],
)
def test_a_batch_that_cannot_be_split_says_why_at_once(batch, said):
    with pytest.raises(LayoutError, match=said):
        Plan(4, accumulate=2).split(batch)
