"""Randomness that belongs to a sample, and global generators that are noticed."""

import random

import numpy as np
import pytest
import torch

from infeed.randomness import GlobalGenerators, KeyedRng


def test_each_sample_stage_and_epoch_has_its_own_stream_whatever_came_before():
    keyed = KeyedRng(seed=1)
    places = [(epoch, position, stage) for epoch in range(3) for position in range(5) for stage in range(3)]
    first = {place: keyed.at(*place).random(3).tolist() for place in places}
    for place in reversed(places):
        keyed.at(*place).integers(0, 10, 7, dtype=np.uint32)  # leaves half a word in the generator
        assert keyed.at(*place).random(3).tolist() == first[place]
    assert len({tuple(values) for values in first.values()}) == len(places)


def test_another_seed_gives_other_draws():
    assert KeyedRng(1).at(0, 0, 0).random() != KeyedRng(2).at(0, 0, 0).random()


@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda: random.random(), "random"),
        (lambda: random.gauss(0, 1), "random"),
        (lambda: random.shuffle([1, 2, 3]), "random"),
        (lambda: np.random.rand(), "numpy.random"),
        (lambda: np.random.permutation(700), "numpy.random"),
        (lambda: torch.rand(1), "torch"),
    ],
)
def test_a_draw_from_any_global_generator_is_noticed(draw, name):
    watch = GlobalGenerators(seed=0)
    before = watch.look()
    draw()
    assert watch.moved(before) == (name,)


def test_no_draw_is_no_news():
    watch = GlobalGenerators(seed=0)
    before = watch.look()
    np.random.default_rng(0).random()
    random.Random(0).random()
    assert watch.moved(before) == ()


def test_seeding_gives_every_generator_the_same_state_again():
    watch = GlobalGenerators(seed=5)
    watch.look()
    watch.note_use(1, ("random", "numpy.random", "torch"))

    def draws():
        watch.seed(0, 7, 1)
        return random.random(), np.random.rand(), float(torch.rand(1))

    assert draws() == draws()


def test_saved_states_are_put_back():
    watch = GlobalGenerators(seed=0)
    random.seed(3)
    expected = random.Random(3).random()
    saved = watch.save()
    random.random(), np.random.rand(), torch.rand(1)
    watch.restore(saved)
    assert random.random() == expected
