"""Concat: rows end to end, offsets, shifted indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from infeed.collate import Concat, Heap, Mismatch
from infeed.errors import LayoutError, PipelineError

GRAPHS = Concat(shift={"edge_index": "x", "root": "x"}, axis={"edge_index": 1})


def graph(nodes: int, edges: int, dtype: str = "int64") -> dict[str, Any]:
    random = np.random.default_rng([nodes, edges])
    return {
        "x": random.random((nodes, 3)),
        "edge_index": random.integers(0, nodes, (2, edges)).astype(dtype),
        "root": nodes - 1,
        "y": 0.5 * nodes,
        "name": f"graph of {nodes}",
    }


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(0, 9)), min_size=1, max_size=6))
def test_offsets_give_every_graph_back(sizes: list[tuple[int, int]]) -> None:
    graphs = [graph(nodes, edges) for nodes, edges in sizes]
    batch = GRAPHS(graphs, Heap())
    nodes, edges = batch["x_offsets"], batch["edge_index_offsets"]
    assert nodes.dtype == edges.dtype == np.int64
    assert len(nodes) == len(edges) == len(graphs) + 1
    for row, one in enumerate(graphs):
        assert (batch["x"][nodes[row] : nodes[row + 1]] == one["x"]).all()
        part = batch["edge_index"][:, edges[row] : edges[row + 1]]
        assert part.shape == one["edge_index"].shape
        assert (part - nodes[row] == one["edge_index"]).all()
        assert (batch["x"][part] == one["x"][one["edge_index"]]).all()
        assert batch["root"][row] == nodes[row] + one["root"]
    assert nodes[-1] == len(batch["x"])
    assert edges[-1] == batch["edge_index"].shape[1]
    assert batch["y"].tolist() == [one["y"] for one in graphs]
    assert batch["name"] == [one["name"] for one in graphs]


def test_the_samples_are_not_touched_by_the_shift() -> None:
    one = graph(4, 5)
    before = one["edge_index"].copy()
    GRAPHS([one, one], Heap())
    assert (one["edge_index"] == before).all()


@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
def test_any_axis_can_grow_and_be_shifted(axis: int) -> None:
    shapes = [[2, 3, 4], [2, 3, 4]]
    shapes[1][axis] = 7
    index = [np.zeros(shape, "int32") for shape in shapes]
    samples = [{"x": np.zeros(5), "i": array} for array in index]
    batch = Concat(shift={"i": "x"}, axis={"i": axis})(samples, Heap())
    expected = np.concatenate([index[0], index[1] + 5], axis=axis)
    assert batch["i"].dtype == np.int32
    assert (batch["i"] == expected).all()


def test_samples_that_are_no_dicts_get_their_offsets_beside_them() -> None:
    (points, label), (offsets,) = Concat()([(np.zeros((2, 3)), 1), (np.zeros((4, 3)), 2)], Heap())
    assert points.shape == (6, 3)
    assert label.tolist() == [1, 2]
    assert offsets.tolist() == [0, 2, 6]


def test_tensors_stay_tensors_and_are_shifted() -> None:
    one = {"x": torch.zeros(3, 2), "i": torch.tensor([0, 2]), "root": torch.tensor(1)}
    batch = Concat(shift={"i": "x", "root": "x"})([one, one], Heap())
    assert all(isinstance(value, torch.Tensor) for value in batch.values())
    assert batch["i"].tolist() == [0, 2, 3, 5]
    assert batch["root"].tolist() == [1, 4]
    assert batch["x_offsets"].tolist() == [0, 3, 6]


def test_the_other_axes_must_agree() -> None:
    with pytest.raises(Mismatch, match=r"row 0 has shape \(1, 3\) and row 2 has shape \(1, 4\)") as caught:
        Concat()([{"x": np.zeros((n, m))} for n, m in [(1, 3), (2, 3), (1, 4)]], Heap())
    assert caught.value.rows == (0, 2)


def test_another_number_of_axes_is_refused_by_row() -> None:
    with pytest.raises(Mismatch, match=r"row 1 has shape \(3,\)"):
        Concat()([{"x": np.zeros((1, 3))}, {"x": np.zeros(3)}], Heap())
    with pytest.raises(Mismatch, match=r"row 1 has shape \(3,\), without an axis 1") as caught:
        Concat(axis={"x": 1})([{"x": np.zeros((1, 3))}, {"x": np.zeros(3)}], Heap())
    assert caught.value.rows == (1,)


def test_another_dtype_is_refused_by_row() -> None:
    with pytest.raises(Mismatch, match="row 1 has dtype float32"):
        Concat()([{"x": np.zeros(2)}, {"x": np.zeros(2, "f4")}], Heap())


def test_more_rows_than_the_index_can_count_are_refused() -> None:
    samples = [{"x": np.zeros(100), "i": np.array([99], "int8")}] * 2
    with pytest.raises(LayoutError, match="200 rows of field 'x', more than int8"):
        Concat(shift={"i": "x"})(samples, Heap())
    full = [{"x": np.zeros(64), "i": np.array([63], "int8")}] * 2
    assert Concat(shift={"i": "x"})(full, Heap())["i"].tolist() == [63, 127]


@pytest.mark.parametrize(
    ("shift", "message"),
    [
        ({"x": "edge_index"}, "only integers can be shifted"),
        ({"name": "x"}, "only integers can be shifted"),
        ({"edge_index": "y"}, "field 'y', which has no rows"),
    ],
)
def test_a_shift_that_makes_no_sense_is_refused(shift: dict[str, str], message: str) -> None:
    with pytest.raises(LayoutError, match=message):
        Concat(shift=shift)([graph(3, 2)], Heap())


@pytest.mark.parametrize("settings", [{"shift": {"i": "x"}}, {"shift": {"x": "i"}}, {"axis": {"i": 1}}])
def test_a_field_that_is_not_there_is_refused_with_those_that_are(settings: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match=r"field 'i', but the fields of a sample are: 'x'"):
        Concat(**settings)([{"x": np.zeros(3)}], Heap())


@pytest.mark.parametrize("settings", [{"shift": "x"}, {"axis": 1}, {"axis": {"x": "1"}}])
def test_bad_settings_are_refused_at_once(settings: dict[str, Any]) -> None:
    with pytest.raises(PipelineError, match="Concat: "):
        Concat(**settings)


def test_offsets_never_overwrite_a_field() -> None:
    with pytest.raises(LayoutError, match="'x_offsets'"):
        Concat()([{"x": np.arange(2), "x_offsets": 1}], Heap())
