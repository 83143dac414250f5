"""Layouts: what fits is written, what does not is refused before a byte is."""

import numpy as np
import pytest
import torch

from infeed.layout import Field, Layout, Misfit


def written(samples, template=None):
    layout = Layout.of(samples[0] if template is None else template)
    memory = np.zeros(layout.nbytes(len(samples)), np.uint8)
    views = layout.views(memory, len(samples))
    objects = layout.write(samples, views, 0)
    return layout, views, objects


def test_rows_are_written_where_they_belong():
    samples = [{"x": np.full(3, i, "float32"), "y": i, "z": f"{i}"} for i in range(4)]
    _, (x, y, z), objects = written(samples)
    assert x.tolist() == [[i] * 3 for i in range(4)]
    assert y.tolist() == [0, 1, 2, 3]
    assert z is None
    assert objects == [["0", "1", "2", "3"]]


@pytest.mark.parametrize(
    ("template", "other", "told"),
    [
        (np.zeros(3), np.zeros(4), "[4]"),
        (np.zeros(3), np.zeros(3, "float32"), "float32"),
        (np.zeros((2, 3)), np.zeros((3, 2)), "[3,2]"),
        (1, 1.5, "float"),
        (np.float32(1), np.float64(1), "float64"),
        (np.zeros(2), "text", "str"),
        (torch.zeros(2), np.zeros(2, "float32"), "float32"),
        (1, 2**70, "int"),
        (None, 3, "int"),
    ],
)
def test_what_does_not_fit_is_refused_and_named(template, other, told):
    with pytest.raises(Misfit) as caught:
        written([template, other], template)
    assert told in str(caught.value)


def test_nothing_is_broadcast_or_cast():
    for odd in (np.zeros((1, 3)), np.zeros(1), np.zeros(3, int), np.float64(0)):
        with pytest.raises(Misfit):
            written([np.zeros(3), odd], np.zeros(3))


def test_two_wrong_shapes_that_add_up_are_still_wrong():
    with pytest.raises(Misfit) as caught:
        written([np.zeros(2), np.zeros(4), np.zeros(3)], np.zeros(3))
    assert caught.value.row == 0


def test_tensors_become_tensors_and_dtypes_numpy_lacks_become_objects():
    layout, views, _ = written([torch.ones(2), torch.zeros(2)])
    assert isinstance(layout.batch(views), torch.Tensor)
    assert Field.of("x", torch.zeros(2, dtype=torch.bfloat16)).dtype is None


@pytest.mark.parametrize(
    "value", [np.zeros(0), np.zeros((2, 0)), np.array(3.0), np.datetime64("2020-01-01", "D"), 1j]
)
def test_odd_but_fixed_rows_fit(value):
    _, (view,), _ = written([value, value])
    assert view.shape == (2, *np.shape(value))
    assert (view == value).all()


def test_structured_rows_fit():
    kind = np.dtype([("a", "i4"), ("b", "f8", 2)])
    _, (view,), _ = written([np.zeros(3, kind), np.ones(3, kind)])
    assert view["a"].tolist() == [[0, 0, 0], [1, 1, 1]]


def test_a_batch_with_one_row_per_sample_has_a_layout_and_others_have_none():
    assert Layout.of_batch({"x": np.zeros((4, 3))}, 4) == Layout.of({"x": np.zeros(3)})
    assert Layout.of_batch({"x": np.zeros((5, 3))}, 4) is None
    assert Layout.of_batch({"x": np.zeros((4, 3)), "n": ["a"] * 4}, 4) is None
