"""Chains of orders."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.order import Chain, Given, Order, Repeat, Shard, Shuffled, Slice, Weighted
from infeed.order.chain import BLOCK


def test_an_empty_chain_is_the_sequential_order():
    chain = Chain((), 5)
    assert chain.size == 5
    assert chain.range(1, 4, 0).tolist() == [1, 2, 3]
    assert chain.range(3, 8, 0).tolist() == [3, 4, 0, 1, 2]


def test_positions_are_those_of_the_last_order():
    chain = Chain((Slice(10, 20), Given([5, 0]), Repeat(2)), 100)
    assert chain.size == 4
    assert chain.at(np.arange(4), 0).tolist() == [15, 10, 15, 10]


def test_shards_of_a_shuffled_dataset_make_up_every_epoch():
    for epoch in (0, 1):
        shards = [Chain((Shuffled(3), Shard(index, 3)), 100).range(0, 33, epoch) for index in range(3)]
        left = Chain((Shuffled(3), Shard(0, 3)), 100).range(33, 34, epoch)
        assert sorted(np.concatenate([*shards, left]).tolist()) == list(range(100))


@given(st.integers(0, 3 * BLOCK), st.integers(0, 2 * BLOCK), st.integers(0, 3))
def test_a_range_is_the_same_as_its_positions_one_by_one(start, length, epoch):
    chain = LONG_CHAIN
    positions = np.arange(start, start + length)
    assert np.array_equal(chain.range(start, start + length, epoch), chain.at(positions, epoch))


LONG_CHAIN = Chain((Shuffled(5), Slice(3)), 2 * BLOCK + 1000)


@pytest.mark.parametrize("n", [1, 7, 2**63])
def test_positions_beyond_the_end_begin_again(n):
    chain = Chain((Shuffled(1),), n)
    positions = np.arange(20)
    assert np.array_equal(chain.at(positions, 2), chain.at(positions % n if n < 20 else positions, 2))
    assert np.array_equal(chain.range(0, 20, 2), chain.at(positions, 2))


class Counting:
    """The sequential order, which counts how often it is asked."""

    def __init__(self):
        self.calls = 0

    def size(self, n):
        return n

    def at(self, positions, n, epoch):
        self.calls += 1
        return positions


def test_a_block_is_computed_once_for_many_small_ranges():
    order = Counting()
    assert isinstance(order, Order)
    chain = Chain((order,), 2 * BLOCK)
    for start in range(0, 2 * BLOCK, 1024):
        chain.range(start, start + 1024, 0)
    assert order.calls == 2


def test_blocks_of_two_epochs_are_kept_side_by_side():
    order = Counting()
    chain = Chain((order,), 100)
    for _ in range(10):
        chain.range(90, 100, 0)
        chain.range(0, 10, 1)
    assert order.calls == 2


def test_a_kept_block_cannot_be_written_to():
    with pytest.raises(ValueError, match="read-only"):
        Chain((Shuffled(1),), 100).range(0, 5, 0)[0] = 1


def test_two_threads_get_the_same_indices():
    chain = Chain((Shuffled(1),), 300_000)
    expected = {epoch: Chain((Shuffled(1),), 300_000).at(np.arange(300_000), epoch) for epoch in range(3)}

    def walk(epoch):
        return np.concatenate([chain.range(start, start + 1000, epoch) for start in range(0, 300_000, 1000)])

    with ThreadPoolExecutor(3) as threads:
        for epoch, got in zip([0, 1, 2, 0], threads.map(walk, [0, 1, 2, 0]), strict=True):
            assert np.array_equal(got, expected[epoch])


def test_an_order_that_does_not_fit_is_refused_at_construction():
    with pytest.raises(PipelineError, match="2 weights for 3"):
        Chain((Weighted([1, 1]),), 3)
    with pytest.raises(PipelineError, match="samples"):
        Chain((), -1)


def test_a_chain_that_leaves_no_sample_says_so_when_asked_for_one():
    chain = Chain((Slice(5),), 5)
    assert chain.size == 0
    assert chain.range(0, 0, 0).tolist() == []
    with pytest.raises(PipelineError, match="no sample"):
        chain.range(0, 1, 0)


def test_a_pickled_chain_leaves_its_blocks_behind():
    chain = Chain((Shuffled(1),), 100_000)
    chain.range(0, 10, 0)
    assert len(pickle.dumps(chain)) < 1000
    assert pickle.loads(pickle.dumps(chain)) == chain
