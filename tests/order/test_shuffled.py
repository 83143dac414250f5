"""Shuffled and block-shuffled orders."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.order import BlockShuffled, Shuffled
from infeed.order.bijection import permuted
from infeed.order.shuffled import STORED_UP_TO

HUGE = 2**63


def epoch_of(order, n, epoch=0):
    return order.at(np.arange(order.size(n)), n, epoch)


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_a_shuffled_epoch_has_every_index_once(n, seed, epoch):
    assert sorted(epoch_of(Shuffled(seed), n, epoch)) == list(range(n))


@given(st.integers(1, 3000), st.integers(0, 2**64 - 1))
def test_the_computed_permutation_has_every_index_once(n, key):
    indices = permuted(np.arange(n), n, np.array([key], np.uint64))
    assert indices.dtype == np.int64
    assert sorted(indices) == list(range(n))


def test_a_large_computed_epoch_has_every_index_once():
    n = STORED_UP_TO + 12_345
    assert np.array_equal(np.sort(epoch_of(Shuffled(3), n)), np.arange(n))


@pytest.mark.parametrize("n", [1000, STORED_UP_TO + 1])
def test_epochs_and_seeds_have_orders_of_their_own(n):
    positions = np.arange(1000)
    orders = [Shuffled(seed).at(positions, n, epoch) for seed in (0, 1, 2**63) for epoch in (0, 1, 2)]
    for number, one in enumerate(orders):
        assert all(np.mean(one == other) < 0.05 for other in orders[:number])


def test_a_permutation_is_made_once_for_an_epoch(monkeypatch):
    made = []

    def counted(seed, epoch, n):
        made.append(epoch)
        return np.arange(n, dtype=np.uint32)

    monkeypatch.setattr("infeed.order.shuffled._permutation", counted)
    order = Shuffled(1)
    for epoch in (0, 0, 1, 0, 1, 2, 1):
        order.at(np.arange(3), 10, epoch)
    assert made == [0, 1, 2]


@pytest.mark.parametrize("n", [1000, HUGE])
def test_positions_may_be_asked_for_in_any_order_and_alone(n):
    order, positions = Shuffled(5), np.arange(1000)
    whole = order.at(positions, n, 4)
    assert np.array_equal(order.at(positions[::-1], n, 4), whole[::-1])
    assert order.at(positions[17:18], n, 4) == whole[17]


def test_indices_of_two_to_the_63_samples_are_distinct_and_spread_over_all():
    positions = np.concatenate([np.arange(5000), HUGE - 1 - np.arange(5000, dtype=np.uint64).astype(np.int64)])
    indices = Shuffled(1).at(positions, HUGE, 0)
    assert len(set(indices.tolist())) == 10_000
    assert indices.min() >= 0
    assert np.bincount(indices >> 60, minlength=8).min() > 1000


def test_the_stored_order_stays_what_it_was():
    # Rests on numpy's Generator.permutation: a failure here means saved states would resume another stream.
    assert epoch_of(Shuffled(7), 12, 0).tolist() == [8, 6, 1, 7, 4, 11, 10, 2, 3, 0, 5, 9]
    assert epoch_of(Shuffled(7), 12, 1).tolist() == [5, 0, 6, 10, 7, 11, 2, 9, 1, 4, 8, 3]


def test_the_computed_order_stays_what_it_was():
    assert Shuffled(7).at(np.arange(4), 10**15, 0).tolist() == [
        490352384621824,
        785442374612577,
        684719326002003,
        514978483129448,
    ]
    assert epoch_of(BlockShuffled(7, 4), 10).tolist() == [9, 8, 1, 2, 0, 3, 5, 7, 4, 6]


@pytest.mark.parametrize("n", [5, 6, 8])
def test_all_orders_of_a_few_samples_are_equally_likely(n):
    keys = 60_000
    key_of_each = np.repeat(np.arange(keys).astype(np.uint64), n)
    orders = permuted(np.tile(np.arange(n), keys), n, key_of_each).reshape(keys, n)
    seen = np.unique(orders @ n ** np.arange(n), return_counts=True)[1]
    kinds = int(np.prod(np.arange(1, n + 1)))
    expected = keys / kinds
    chi_square = ((seen - expected) ** 2 / expected).sum() + (kinds - len(seen)) * expected
    assert abs(chi_square - kinds) < 5 * np.sqrt(2 * kinds)


def test_pairs_at_neighbouring_positions_are_equally_likely_in_a_larger_permutation():
    n, keys = 300, 40_000
    key_of_each = np.repeat(np.arange(keys).astype(np.uint64), 2)
    pairs = permuted(np.tile(np.arange(2), keys), n, key_of_each).reshape(keys, 2) // 30
    seen = np.bincount(pairs @ [10, 1], minlength=100)
    same = np.arange(100) % 11 == 0
    expected = np.where(same, 30 * 29, 30 * 30) / (n * (n - 1)) * keys
    assert ((seen - expected) ** 2 / expected).sum() < 99 + 5 * np.sqrt(2 * 99)


@given(st.integers(1, 2000), st.integers(1, 300), st.integers(0, 2**32), st.integers(0, 5))
def test_a_block_shuffled_epoch_has_every_index_once_and_keeps_neighbours_together(n, block, seed, epoch):
    indices = epoch_of(BlockShuffled(seed, block), n, epoch)
    assert sorted(indices) == list(range(n))
    changes = np.count_nonzero(np.diff(indices // block))
    assert changes == -(-n // block) - 1


def test_blocks_and_the_samples_inside_them_are_shuffled():
    indices = epoch_of(BlockShuffled(1, 100), 10_000)
    blocks = indices[::100] // 100
    assert np.mean(np.diff(blocks) > 0) < 0.7
    inside = [tuple(indices[indices // 100 == block] % 100) for block in range(100)]
    assert len(set(inside)) == 100


def test_the_short_block_comes_in_every_place():
    places = {int(np.argmax(epoch_of(BlockShuffled(1, 4), 14, epoch) >= 12)) // 4 for epoch in range(100)}
    assert places == {0, 1, 2, 3}


def test_blocks_of_two_to_the_63_samples_stay_blocks():
    indices = BlockShuffled(1, 1000).at(np.arange(5000), HUGE - 807, 2)
    assert len(set(indices.tolist())) == 5000
    assert len(set((indices // 1000).tolist())) <= 6


def test_a_pickled_order_is_small_and_the_same():
    order = Shuffled(7)
    whole = epoch_of(order, 100_000)
    shipped = pickle.dumps(order)
    assert len(shipped) < 1000
    assert pickle.loads(shipped) == order
    assert np.array_equal(epoch_of(pickle.loads(shipped), 100_000), whole)
    assert repr(order) == "Shuffled(seed=7)"
    assert repr(BlockShuffled(7, 16)) == "BlockShuffled(seed=7, block=16)"


@pytest.mark.parametrize("block", [0, -1, 1.5, True, None])
def test_a_block_without_samples_is_refused(block):
    with pytest.raises(PipelineError, match="block"):
        BlockShuffled(0, block)
