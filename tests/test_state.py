"""States that fit, and states that do not."""

import numpy as np
import pytest

import infeed


def pipeline(n=20, seed=1, batch=4, **settings):
    return infeed.arrays(np.arange(n)).shuffle(seed=seed).batch(batch, **settings)


def state_of(made, steps=2):
    with infeed.Loader(made, workers=0) as loader:
        iterator = iter(loader)
        for _ in range(steps):
            next(iterator)
        return loader.state_dict()


@pytest.mark.parametrize(
    ("other", "told"),
    [
        (pipeline(n=24), "samples: 20 in the state, 24 here"),
        (pipeline(seed=2), "seed: 1 in the state, 2 here"),
        (pipeline(batch=5), "global batch: 4 in the state, 5 here"),
        (pipeline(drop_last=True), "last: 'keep' in the state, 'drop' here"),
        (infeed.arrays(np.arange(20)).shuffle(seed=1).map(abs).batch(4), "stages"),
    ],
)
def test_a_state_of_another_pipeline_is_refused_with_what_differs(other, told):
    with infeed.Loader(other, workers=0) as loader, pytest.raises(infeed.StateError) as caught:
        loader.load_state_dict(state_of(pipeline()))
    assert told in str(caught.value)


@pytest.mark.parametrize("nonsense", [None, {}, {"infeed": 0}, {"infeed": 1}, [1, 2]])
def test_what_is_no_state_is_refused(nonsense):
    with infeed.Loader(pipeline(), workers=0) as loader, pytest.raises(infeed.StateError):
        loader.load_state_dict(nonsense)


def test_another_number_of_iterations_is_refused_where_it_does_not_divide():
    made = state_of(infeed.arrays(np.arange(20)).batch(infeed.Plan(2, iterations=2)), steps=1)
    other = infeed.arrays(np.arange(20)).batch(infeed.Plan(2, iterations=5))
    with infeed.Loader(other, workers=0) as loader, pytest.raises(infeed.StateError, match="iterations"):
        loader.load_state_dict(made)


def test_out_of_order_there_is_no_state_in_the_middle_of_an_epoch():
    with infeed.Loader(pipeline(), workers=0, in_order=False) as loader:
        loader.state_dict()
        next(iter(loader))
        with pytest.raises(infeed.StateError, match="in_order"):
            loader.state_dict()


def test_a_state_is_plain_enough_for_json():
    import json

    state = state_of(pipeline())
    assert json.loads(json.dumps(state)) == state
