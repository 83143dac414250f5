"""How much is done at once."""

import numpy as np
import pytest

import infeed
from infeed.pace import set_pace


def pace(rows=64, width=4, **settings):
    recipe = infeed.arrays(np.zeros((10_000, width), "float32")).batch(rows).recipe()
    known = {
        "steps": 1000,
        "workers": 2,
        "prefetch": None,
        "memory_limit": 1 << 30,
        "group_bytes": 1 << 22,
        "seconds_per_row": 1e-6,
        "payload_per_row": 0.0,
        **settings,
    }
    return set_pace(recipe, recipe.known_layout(), **known)


def test_small_steps_share_a_slot_and_large_ones_are_cut():
    small, large = pace(seconds_per_row=1e-7), pace(seconds_per_row=1e-3)
    assert (small.group > 1, small.parts) == (True, 1)
    assert (large.group, large.parts > 2) == (1, True)


def test_a_step_is_not_cut_into_more_tasks_than_it_has_rows():
    assert pace(rows=3, seconds_per_row=1.0).parts == 3


def test_prefetch_is_kept():
    assert pace(prefetch=32).ahead == 32
    assert pace(prefetch=1).group == 1


@pytest.mark.parametrize("limit", [1 << 16, 1 << 20])
def test_several_slots_fit_into_a_small_memory_limit(limit):
    assert 4 * pace(memory_limit=limit).nbytes <= limit


def test_nothing_is_prepared_ahead_inline():
    found = pace(workers=0)
    assert found.ahead == found.group


def test_a_short_epoch_is_not_exceeded():
    assert pace(steps=2, seconds_per_row=1e-8).group <= 2
