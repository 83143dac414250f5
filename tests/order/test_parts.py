"""Splits and folds."""

import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.order import fold_parts, split_parts

seeds = st.none() | st.integers(0, 2**32)


def samples_of(order, n, epoch=0):
    return order.at(np.arange(order.size(n)), n, epoch).tolist()


@given(st.integers(0, 200), st.lists(st.integers(1, 100), min_size=1, max_size=6), seeds)
def test_the_parts_of_a_split_are_disjoint_complete_and_of_fair_size(n, shares, seed):
    fractions = [share / sum(shares) for share in shares]
    parts = split_parts(n, fractions, seed)
    samples = [samples_of(part, n) for part in parts]
    assert sorted(index for part in samples for index in part) == list(range(n))
    assert all(abs(len(part) - n * share) < 1 + 1e-9 for part, share in zip(samples, fractions, strict=True))


@pytest.mark.parametrize(
    ("n", "fractions", "sizes"),
    [
        (10, [0.7, 0.2, 0.1], [7, 2, 1]),
        (10, [0.75, 0.25], [8, 2]),
        (10, [1 / 3] * 3, [4, 3, 3]),
        (10, [0.33, 0.67], [3, 7]),
        (5, [0.7, 0.3], [4, 1]),
        (3 * 2**60, [1 / 3] * 3, [2**60] * 3),
        (2**62, [0.5, 0.25, 0.25], [2**61, 2**60, 2**60]),
        (7, [0.0, 1.0], [0, 7]),
        (5, [2, 3], [2, 3]),
        (5, [np.int64(5), 0], [5, 0]),
    ],
)
def test_sizes_follow_the_largest_remainder_or_the_counts(n, fractions, sizes):
    assert [part.size(n) for part in split_parts(n, fractions)] == sizes


def test_a_split_without_a_seed_is_contiguous_and_with_one_shuffled():
    assert samples_of(split_parts(10, [0.6, 0.4])[1], 10) == [6, 7, 8, 9]
    shuffled = samples_of(split_parts(1000, [0.6, 0.4], seed=3)[1], 1000)
    assert 300 < np.mean(shuffled) < 700
    assert shuffled == samples_of(split_parts(1000, [0.6, 0.4], seed=3)[1], 1000)
    assert shuffled != samples_of(split_parts(1000, [0.6, 0.4], seed=4)[1], 1000)


def test_no_sample_moves_to_another_part_in_a_later_epoch():
    for part in [*split_parts(50, [0.5, 0.5], seed=1), *fold_parts(50, 3, seed=1)[0]]:
        assert samples_of(part, 50, epoch=0) == samples_of(part, 50, epoch=9)


@pytest.mark.parametrize(
    ("sizes", "said"),
    [
        ([], "cannot split"),
        ([-1, 11], "cannot split"),
        ([float("nan"), 1.0], "cannot split"),
        ([True, 9], "cannot split"),
        ([0.5, 0.4], "sum to 0.9"),
        ([4, 5], "sum to 9, but there are 10"),
        ([5, 0.5], "mixes"),
    ],
)
def test_sizes_that_do_not_make_a_whole_are_refused(sizes, said):
    with pytest.raises(PipelineError, match=said):
        split_parts(10, sizes)


@given(st.integers(2, 100), st.data(), seeds)
def test_each_sample_is_in_one_validation_fold_and_in_the_training_of_all_others(n, data, seed):
    k = data.draw(st.integers(2, n))
    folds = fold_parts(n, k, seed)
    for train, validation in folds:
        assert sorted(samples_of(train, n) + samples_of(validation, n)) == list(range(n))
    validations = [samples_of(validation, n) for _, validation in folds]
    assert sorted(index for fold in validations for index in fold) == list(range(n))
    assert max(map(len, validations)) - min(map(len, validations)) <= 1


@pytest.mark.parametrize("k", [0, 1, 11, 2.0])
def test_a_number_of_folds_that_cannot_be_is_refused(k):
    with pytest.raises(PipelineError, match=r"k is|folds"):
        fold_parts(10, k)


def test_a_part_is_for_the_dataset_it_was_cut_from():
    part = split_parts(10, [0.5, 0.5])[0]
    assert pickle.loads(pickle.dumps(part)) == part
    with pytest.raises(PipelineError, match="cut from 10 samples and is used on 11"):
        part.size(11)
    with pytest.raises(PipelineError, match="cut from 10"):
        fold_parts(10, 2)[0][0].size(9)
