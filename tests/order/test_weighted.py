"""Weighted orders and balanced classes."""

import pickle

import numpy as np
import pytest

from infeed.errors import PipelineError
from infeed.order import Weighted, balanced_weights


def test_samples_are_drawn_as_often_as_their_weights_say():
    weights = np.array([1.0, 0, 2, 3, 4, 0])
    drawn = Weighted(weights, 100_000, seed=1).at(np.arange(100_000), 6, 0)
    counts = np.bincount(drawn, minlength=6)
    expected = weights / 10 * 100_000
    assert counts[[1, 5]].tolist() == [0, 0]
    assert np.all(np.abs(counts - expected) < 5 * np.sqrt(expected + 1))


def test_any_position_can_be_drawn_alone():
    order = Weighted(np.arange(50) + 1, 1000, seed=2)
    whole = order.at(np.arange(1000), 50, 3)
    assert np.array_equal(order.at(np.arange(600, 700), 50, 3), whole[600:700])
    assert np.array_equal(order.at(np.arange(1000)[::-7], 50, 3), whole[::-7])


def test_each_epoch_and_seed_draws_anew():
    weights, positions = np.ones(1000), np.arange(1000)
    draws = [Weighted(weights, None, seed).at(positions, 1000, epoch) for seed in (0, 1) for epoch in (0, 1)]
    for number, one in enumerate(draws):
        assert all(np.mean(one == other) < 0.05 for other in draws[:number])


def test_no_number_of_samples_means_as_many_as_there_are():
    assert Weighted([1, 2, 3]).size(3) == 3
    assert Weighted([1, 2, 3], 1000).size(3) == 1000


def test_a_draw_of_0_passes_over_samples_of_weight_0(monkeypatch):
    monkeypatch.setattr("infeed.order.weighted.uniform", lambda positions, key: np.zeros(len(positions)))
    assert Weighted([0.0, 2.0, 1.0]).at(np.arange(1), 3, 0).tolist() == [1]


def test_a_draw_that_rounds_up_to_the_sum_still_finds_a_sample(monkeypatch):
    monkeypatch.setattr("infeed.order.weighted.uniform", lambda positions, key: np.ones(len(positions)))
    assert Weighted([1.0, 2.0, 0.0]).at(np.arange(1), 3, 0).tolist() == [1]


@pytest.mark.parametrize(
    ("weights", "said"),
    [
        ([1, -1], "weight of sample 1 is -1"),
        ([np.nan], "weight of sample 0"),
        ([0, 0], "all weights are 0"),
        ([], "shape"),
        ([[1, 2]], "shape"),
        ([1e308, 1e308], "sum to infinity"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_weights_that_cannot_work_are_refused(weights, said):
    with pytest.raises(PipelineError, match=said):
        Weighted(weights)


def test_there_is_one_weight_for_each_sample():
    with pytest.raises(PipelineError, match="3 weights for 4 samples"):
        Weighted([1, 2, 3]).size(4)


def test_an_epoch_has_at_least_one_draw():
    with pytest.raises(PipelineError, match="samples is 0"):
        Weighted([1, 2, 3], samples=0)


def test_weighted_orders_are_values():
    order = Weighted([1, 2, 3], seed=4)
    assert pickle.loads(pickle.dumps(order)) == order
    assert hash(Weighted([1, 2, 3], seed=4)) == hash(order)
    assert order != Weighted([1, 2, 4], seed=4)
    assert repr(order) == "Weighted(3 weights, samples=None, seed=4)"


def test_the_weights_of_the_caller_are_copied():
    weights = np.array([1.0, 0.0])
    order = Weighted(weights)
    weights[:] = [0, 1]
    assert order.at(np.arange(5), 2, 0).tolist() == [0] * 5


@pytest.mark.parametrize("labels", [["a", "b", "b", "b", "c"], np.array([7, 2, 2, 2, 9])])
def test_balanced_weights_make_every_class_equally_likely(labels):
    weights = balanced_weights(labels)
    assert weights.sum() == pytest.approx(1)
    assert weights[0] == pytest.approx(1 / 3)
    assert weights[1:4].sum() == pytest.approx(1 / 3)


def test_labels_of_another_shape_are_refused():
    with pytest.raises(PipelineError, match=r"shape \(2, 2\)"):
        balanced_weights([[0, 1], [1, 0]])
