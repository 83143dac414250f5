"""Seeds."""

import numpy as np
import pytest

from infeed.errors import PipelineError
from infeed.order import Shuffled, as_seed


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_gives_a_seed_by_one_draw_of_63_bits(make):
    seeds = [as_seed(make(number)) for number in range(200)]
    assert seeds == [as_seed(make(number)) for number in range(200)]
    assert len(set(seeds)) == 200
    assert 2**62 < max(seeds) < 2**63
    generator = make(0)
    assert as_seed(generator) != as_seed(generator)


def test_an_integer_of_any_kind_is_itself():
    assert as_seed(np.int32(5)) == 5
    assert type(as_seed(np.uint64(2**64 - 1))) is int


@pytest.mark.parametrize("seed", [None, True, np.True_, -1, 1.0, "7", 2**64])
def test_what_is_no_seed_is_refused(seed):
    with pytest.raises(PipelineError, match="seed is"):
        as_seed(seed)
    with pytest.raises(PipelineError, match="seed is"):
        Shuffled(seed)
