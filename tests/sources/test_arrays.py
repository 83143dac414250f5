"""arrays(): fields gathered by column give the same rows as plain indexing, whatever holds them."""

import pickle

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import LayoutError, PipelineError
from infeed.sources import Strings, arrays


class Accessor:
    """Rows of different sizes for an array of indices."""

    def __init__(self, answer, length=6):
        self.answer = answer
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, indices):
        assert isinstance(indices, np.ndarray)
        return self.answer(indices)


BASE = np.arange(240, dtype=np.int32).reshape(12, 20)
ARRAYS = {
    "contiguous": BASE,
    "every second row": BASE[::2],
    "backwards": BASE[::-1],
    "transposed": BASE.T,
    "some columns": BASE[:, 3:7],
    "broadcast": np.broadcast_to(BASE[:1], (8, 20)),
    "fortran": np.asfortranarray(BASE),
    "big endian": BASE.astype(">i4"),
    "rows without content": BASE[:, :0],
    "unaligned": np.frombuffer(b"x" + BASE.tobytes(), np.int32, offset=1).reshape(12, 20),
}


@pytest.mark.parametrize("kind", ARRAYS)
@pytest.mark.parametrize("with_out", [False, True])
def test_a_column_takes_the_rows_of_any_array(kind, with_out):
    data = ARRAYS[kind]
    column = arrays(data).columns.columns[0]
    indices = np.array([3, 0, 5, 5], np.int64)
    out = np.empty((4, *column.shape), column.dtype) if with_out else None
    taken = column.take(indices, out)
    assert taken.dtype == np.dtype(np.int32)
    assert taken.dtype.isnative
    assert np.array_equal(taken, data[indices])
    assert not np.shares_memory(taken, data) or taken.size == 0
    assert out is None or taken is out


def test_a_column_writes_into_rows_that_are_not_contiguous():
    block = np.zeros((3, 8), np.int64)
    arrays(np.arange(10).reshape(5, 2)).columns.columns[0].take(np.array([4, 1, 0]), block[:, 2:4])
    assert block[:, 2:4].tolist() == [[8, 9], [2, 3], [0, 1]]
    assert block.sum() == 8 + 9 + 2 + 3 + 0 + 1


@given(st.lists(st.integers(0, 11), max_size=30))
def test_samples_are_the_rows_in_the_order_asked_for(wanted):
    images, labels = np.arange(48).reshape(12, 2, 2), np.arange(12)
    samples = arrays(image=images, label=labels).fetch(np.array(wanted, np.int64), 0)
    assert [int(sample["label"]) for sample in samples] == wanted
    assert all(np.array_equal(s["image"], images[i]) for s, i in zip(samples, wanted, strict=True))


def test_named_arrays_give_dicts_several_tuples_and_one_the_bare_row():
    x, y = np.arange(3), np.arange(3) * 10
    assert arrays(a=x, b=y)[1] == {"a": 1, "b": 10}
    assert arrays(x, y)[1] == (1, 10)
    assert arrays(x)[1] == 1


def test_changing_a_sample_in_place_leaves_the_arrays_alone():
    data = np.zeros((4, 2))
    ragged = [np.zeros(2), np.zeros(3), np.zeros(2), np.zeros(1)]
    for sample in arrays(data, ragged).fetch(np.arange(4), 0):
        sample[0][...] = 1
        sample[1][...] = 1
    assert not data.any()
    assert not any(row.any() for row in ragged)


def test_a_memory_map_stays_a_memory_map(tmp_path):
    stored = np.memmap(tmp_path / "x.bin", np.float32, "w+", shape=(5, 3))
    stored[:] = np.arange(15).reshape(5, 3)
    source = arrays(stored)
    assert isinstance(source.columns.columns[0].array, np.memmap)
    assert type(source[4]) is np.ndarray
    assert source[4].tolist() == [12, 13, 14]


def test_nested_lists_become_one_array():
    source = arrays(x=[[1, 2], [3, 4]], y=(0.5, 1.5), z=range(2))
    assert source.fields == "{x: int64[2], y: float64[], z: int64[]}"
    assert source[1]["x"].tolist() == [3, 4]


def test_ragged_lists_keep_their_rows_as_arrays():
    source = arrays(x=[[1, 2], [3]], y=[0, 1])
    assert source.fields == "{x: varying, y: int64[]}"
    assert [sample["x"].tolist() for sample in source.fetch(np.array([1, 0]), 0)] == [[3], [1, 2]]


def test_rows_ragged_twice_stay_leaves():
    row = arrays([[[1], [2, 3]], [[4, 5, 6]]])[0]
    assert isinstance(row, np.ndarray)
    assert [part.tolist() for part in row] == [[1], [2, 3]]


@pytest.mark.parametrize(
    "data",
    [["a", "bc", "ü"], np.array(["a", "bc", "ü"]), Strings(["a", "bc", "ü"])],
    ids=["list", "U", "Strings"],
)
def test_strings_come_out_as_plain_str(data):
    rows = arrays(data).fetch(np.array([2, 0]), 0)
    assert rows == ["ü", "a"]
    assert {type(row) for row in rows} == {str}
    assert arrays(data).fields == "str"


def test_objects_numpy_cannot_hold_stay_as_they_are():
    mixed = [None, 3, "x"]
    assert arrays(mixed).fetch(np.arange(3), 0) == mixed
    assert arrays([1, "a"]).fetch(np.arange(2), 0) == [1, "a"]


def test_an_object_array_has_its_objects_as_rows():
    data = np.empty(2, object)
    data[0], data[1] = [1, 2], np.zeros(3)
    assert [row.tolist() for row in arrays(data).fetch(np.arange(2), 0)] == [[1, 2], [0, 0, 0]]


def test_an_accessor_may_return_rows_of_different_sizes():
    source = arrays(image=Accessor(lambda at: [np.full(i + 1, i) for i in at]), label=np.arange(6))
    assert [sample["image"].tolist() for sample in source.fetch(np.array([2, 0]), 0)] == [[2, 2, 2], [0]]
    column = source.columns.columns[0]
    assert (column.dtype, column.shape) == (None, None)


def test_an_accessor_may_return_an_array():
    assert arrays(Accessor(lambda at: at * 2)).fetch(np.array([4, 1]), 0) == [8, 2]


def test_an_accessor_cannot_change_the_indices_of_its_neighbours():
    def spoil(at):
        at[:] = 0
        return at

    assert [int(s[1]) for s in arrays(Accessor(spoil), np.arange(6)).fetch(np.array([4, 1]), 0)] == [4, 1]


def test_an_accessor_that_says_its_dtype_and_shape_is_written_in_place():
    accessor = Accessor(lambda at: np.stack([at, at], 1).astype(np.int16))
    accessor.dtype, accessor.shape = np.dtype(np.int16), (6, 2)
    column = arrays(accessor).columns.columns[0]
    out = np.zeros((2, 2), np.int16)
    assert column.shape == (2,)
    assert column.take(np.array([5, 1]), out) is out
    assert out.tolist() == [[5, 5], [1, 1]]


def test_an_accessor_that_breaks_its_word_is_named():
    accessor = Accessor(lambda at: np.zeros((len(at), 3)))
    accessor.dtype, accessor.shape = np.dtype(np.int16), (6, 2)
    with pytest.raises(LayoutError, match=r"field 'x' says its rows are int16\[2\] and returned float64\[3\]"):
        arrays(x=accessor).fetch(np.array([0]), 0)


def test_an_accessor_that_returns_too_few_rows_is_named():
    with pytest.raises(LayoutError, match="field 'x' was asked for 2 rows and returned 1 rows"):
        arrays(x=Accessor(lambda at: at[:1])).fetch(np.array([0, 1]), 0)
    with pytest.raises(LayoutError, match="returned float"):
        arrays(x=Accessor(lambda at: 0.5)).fetch(np.array([0, 1]), 0)


def test_tensors_are_taken_without_a_copy():
    class Tensor:
        shape = (3,)
        data = np.arange(3)

        def numpy(self):
            return self.data

    assert arrays(Tensor()).columns.columns[0].array is Tensor.data


def test_a_tensor_without_a_numpy_form_is_refused():
    class Tensor:
        shape = (3,)

        def numpy(self):
            raise TypeError("on the GPU")

    with pytest.raises(PipelineError, match=r"field 'x' is a tensor.*on the GPU"):
        arrays(x=Tensor())


def test_fields_of_unequal_length_are_refused_with_their_lengths():
    with pytest.raises(PipelineError, match="image has 3, label has 4"):
        arrays(image=np.zeros((3, 2)), label=np.zeros(4))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: arrays(), "at least one"),
        (lambda: arrays([1], x=[1]), "either arrays or named"),
        (lambda: arrays(np.zeros((0, 3))), "empty"),
        (lambda: arrays(np.array(3.0)), "single number"),
        (lambda: arrays({"x": [1]}), r"arrays\(\*\*fields\)"),
        (lambda: arrays(x="abc"), "field 'x' is of type str"),
        (lambda: arrays(x=3), "field 'x' is of type int"),
        (lambda: arrays(x=arrays([1])), "infeed.zip"),
        (lambda: arrays(x=[{"a": 1}]), "row 0 of field 'x' is of type dict"),
        (lambda: arrays(x=np.ma.masked_array([1, 2], [0, 1])), "masked array"),
    ],
)
def test_what_cannot_be_a_column_is_refused_with_advice(make, message):
    with pytest.raises(PipelineError, match=message):
        make()


def test_select_keeps_the_named_fields_in_the_order_named():
    source = arrays(a=[1, 2], b=[3, 4], c=[5, 6])
    assert list(source.select(["c", "a"])[1].items()) == [("c", 6), ("a", 2)]
    assert source.select("b")[0] == {"b": 3}
    assert arrays([1, 2], [3, 4], [5, 6]).select([2, 0])[1] == (6, 2)


def test_rename_changes_the_names_only():
    source = arrays(a=[1, 2], b=[3, 4]).rename({"a": "b", "b": "a"})
    assert source[0] == {"b": 1, "a": 3}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.select(["z"]), "no field 'z'; there are 'a', 'b'"),
        (lambda s: s.select([]), "at least one"),
        (lambda s: s.select(["a", "a"]), "each once"),
        (lambda s: s.rename({"z": "a"}), "no field 'z'"),
        (lambda s: s.rename({"a": "b"}), "same name"),
    ],
)
def test_unknown_or_clashing_fields_are_refused(change, message):
    with pytest.raises(PipelineError, match=message):
        change(arrays(a=[1], b=[2]))


def test_fields_of_a_bare_row_cannot_be_chosen():
    with pytest.raises(PipelineError, match="bare row"):
        arrays([1, 2]).select(["x"])
    with pytest.raises(PipelineError, match="named fields"):
        arrays([1], [2]).rename({"x": "y"})


def test_only_sources_without_accessors_are_thread_safe():
    assert arrays(np.arange(3), ["a", "b", "c"], [[1], [2, 3], []]).thread_safe
    assert not arrays(Accessor(lambda at: at)).thread_safe


def test_indices_count_from_the_end_and_stop_at_it():
    source = arrays(np.arange(5))
    assert source[-1] == 4
    assert source[np.int64(2)] == 2
    for beyond in (5, -6):
        with pytest.raises(IndexError, match="5 samples"):
            source[beyond]
    assert [int(x) for x in source] == [0, 1, 2, 3, 4]


def test_a_source_survives_pickling():
    source = arrays(x=np.arange(6).reshape(3, 2), y=["a", "b", "c"], z=[[1], [2, 3], []])
    copy = pickle.loads(cloudpickle.dumps(source))
    assert repr(copy) == repr(source)
    assert copy[1]["x"].tolist() == [2, 3]
    assert copy[1]["y"] == "b"
