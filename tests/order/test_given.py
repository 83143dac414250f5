"""The user's own order."""

import pickle

import numpy as np
import pytest

from infeed.errors import PipelineError
from infeed.order import Given


@pytest.mark.parametrize("indices", [[3, 1, 1], (3, 1, 1), np.array([3, 1, 1], np.uint8)])
def test_given_indices_come_in_their_order(indices):
    order = Given(indices)
    assert order.size(4) == 3
    got = order.at(np.arange(3), 4, epoch=5)
    assert got.dtype == np.int64
    assert got.tolist() == [3, 1, 1]


def test_a_function_gives_each_epoch_its_indices_and_is_asked_once_for_each():
    asked = []

    def backwards_in_odd_epochs(epoch):
        asked.append(epoch)
        return [0, 1, 2] if epoch % 2 == 0 else [2, 1, 0]

    order = Given(backwards_in_odd_epochs)
    assert order.size(3) == 3
    for epoch in (0, 1, 1, 2, 2):
        assert order.at(np.array([0]), 3, epoch).tolist() == ([0] if epoch % 2 == 0 else [2])
    assert asked.count(1) == asked.count(2) == 1
    assert "backwards_in_odd_epochs" in repr(order)


def test_a_function_of_changing_length_is_refused():
    order = Given(lambda epoch: range(3 + epoch))
    assert order.size(9) == 3
    with pytest.raises(PipelineError, match="3 indices for epoch 0, 5 for epoch 2"):
        order.at(np.arange(3), 9, epoch=2)


def test_an_index_without_a_sample_is_named():
    with pytest.raises(PipelineError, match="index 4 at position 1"):
        Given([0, 4]).size(4)
    with pytest.raises(PipelineError, match="index -1 at position 0"):
        Given([-1, 4])
    with pytest.raises(PipelineError, match="index 9 at position 1"):
        Given(lambda epoch: [0, 9 * epoch]).at(np.arange(2), 4, epoch=1)


@pytest.mark.parametrize("indices", [[0.5], [[0]], [True, False], ["a"], np.array([2**63], np.uint64)])
def test_what_are_no_indices_is_refused(indices):
    with pytest.raises(PipelineError, match="ind"):
        Given(indices)


def test_given_orders_are_values_of_their_own():
    indices = np.array([1, 0])
    order = Given(indices)
    indices[:] = 0
    assert order == Given([1, 0]) == pickle.loads(pickle.dumps(order))
    assert hash(order) == hash(Given([1, 0]))
    assert order != Given([0, 1])
    assert repr(order) == "Given(2 indices)"
