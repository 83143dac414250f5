"""Views: slices, subsets, shards, repetitions."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.order import Given, Repeat, Shard, Slice, Subset

ends = st.none() | st.integers(-30, 30)


def epoch_of(order, n):
    return order.at(np.arange(order.size(n)), n, 0).tolist()


@given(ends, ends, st.none() | st.integers(-5, 5).filter(bool), st.integers(0, 25))
def test_a_slice_is_what_it_is_for_a_list(start, stop, step, n):
    expected = list(range(n))[start:stop:step]
    assert Slice(start, stop, step).size(n) == len(expected)
    assert epoch_of(Slice(start, stop, step), n) == expected


def test_a_slice_of_two_to_the_63_samples_has_its_size():
    assert Slice(1, None, 2).size(2**63) == 2**62
    assert Slice(2**62).at(np.array([5]), 2**63, 0).tolist() == [2**62 + 5]


def test_a_slice_without_a_step_is_refused():
    with pytest.raises(PipelineError, match="step"):
        Slice(0, 5, 0)


@given(st.integers(0, 100), st.integers(1, 12))
def test_shards_are_disjoint_complete_and_differ_by_at_most_one(n, count):
    shards = [epoch_of(Shard(index, count), n) for index in range(count)]
    assert sorted(index for shard in shards for index in shard) == list(range(n))
    sizes = list(map(len, shards))
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize(("index", "count"), [(3, 3), (-1, 3), (0, 0), (0.5, 2), (True, 2)])
def test_a_shard_that_does_not_exist_is_refused(index, count):
    with pytest.raises(PipelineError, match="shard"):
        Shard(index, count)


@given(st.integers(1, 20), st.integers(1, 5))
def test_a_repetition_has_all_samples_so_many_times(n, times):
    assert epoch_of(Repeat(times), n) == list(range(n)) * times


def test_repetitions_that_no_index_can_count_are_refused():
    with pytest.raises(PipelineError, match="2\\^63"):
        Repeat(2).size(2**63)
    with pytest.raises(PipelineError, match="times is 0"):
        Repeat(0)


def test_a_subset_has_the_samples_asked_for():
    assert epoch_of(Subset([4, 0, 4]), 5) == [4, 0, 4]
    assert repr(Subset([4, 0])) == "Subset(2 indices)"
    assert Subset([4]) == Subset([4]) != Given([4])
    with pytest.raises(PipelineError, match="index 4"):
        Subset([4]).size(4)
    with pytest.raises(PipelineError, match="subset"):
        Subset(lambda epoch: [0])


@pytest.mark.parametrize("view", [Slice(1, 5), Shard(0, 2), Repeat(3), Subset([1])])
def test_views_are_values(view):
    assert pickle.loads(pickle.dumps(view)) == view
