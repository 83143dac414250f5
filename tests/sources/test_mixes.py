"""zip, concat and choose: the samples of several sources, none lost and none invented."""

from collections import Counter
from fractions import Fraction

import cloudpickle
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from infeed.errors import PipelineError
from infeed.sources import arrays, choose, concat, iterable, zip
from infeed.sources.source import Source


class Counting(Source):
    def __init__(self, name, length):
        self.name, self.length, self.calls = name, length, []

    def __len__(self):
        return self.length

    def fetch(self, indices, epoch):
        self.calls.append((indices.tolist(), epoch))
        return [(self.name, epoch, i) for i in indices.tolist()]


def test_zip_puts_samples_side_by_side():
    assert zip([1, 2], ["a", "b"])[1] == (2, "b")
    assert zip(x=[1, 2], y=["a", "b"])[1] == {"x": 2, "y": "b"}
    assert zip([1, 2])[0] == (1,)


def test_zip_of_arrays_has_nested_columns_that_agree_with_its_samples():
    made = zip(image=arrays(np.arange(6).reshape(3, 2)), more=arrays(a=[1, 2, 3], b=[4.0, 5.0, 6.0]))
    assert made.fields == "{image: int64[2], more: {a: int64[], b: float64[]}}"
    by_column = made.columns.samples(np.array([2, 0]))
    by_sample = made.fetch(np.array([2, 0]), 0)
    assert str(by_column) == str(by_sample)
    assert made.thread_safe


def test_zip_with_a_member_without_columns_has_none():
    made = zip(arrays([1, 2]), Counting("a", 2))
    assert made.columns is None
    assert not made.thread_safe


def test_zip_of_unequal_lengths_is_refused_with_the_lengths():
    with pytest.raises(PipelineError, match="x has 2, y has 3"):
        zip(x=[1, 2], y=[1, 2, 3])


@pytest.mark.parametrize("make", [zip, concat, lambda: zip([1], x=[1]), lambda: choose([])])
def test_a_mix_of_nothing_or_of_both_kinds_is_refused(make):
    with pytest.raises(PipelineError):
        make()


@pytest.mark.parametrize("mix", [zip, concat, lambda source: choose([source])])
def test_iterables_have_no_index_to_mix_by(mix):
    with pytest.raises(PipelineError, match="can only be read in order"):
        mix(iterable(lambda: [1]))


@given(st.lists(st.integers(0, 5), min_size=1, max_size=6), st.data())
def test_concat_is_one_list_after_the_other(lengths, data):
    members = [[(k, i) for i in range(length)] for k, length in enumerate(lengths)]
    made, joined = concat(*members), [sample for member in members for sample in member]
    assert len(made) == len(joined)
    if joined:
        wanted = data.draw(st.lists(st.integers(0, len(joined) - 1)))
        assert made.fetch(np.array(wanted, np.int64), 0) == [joined[i] for i in wanted]


def test_concat_asks_each_member_once_and_passes_the_epoch():
    a, b, c = (Counting(name, 3) for name in "abc")
    samples = concat(a, b, c).fetch(np.array([8, 0, 7, 1]), 5)
    assert samples == [("c", 5, 2), ("a", 5, 0), ("c", 5, 1), ("a", 5, 1)]
    assert (a.calls, b.calls, c.calls) == ([([0, 1], 5)], [], [([2, 1], 5)])


@given(st.lists(st.integers(0, 8), max_size=12), st.booleans())
def test_columns_of_concat_are_the_joined_arrays(wanted, with_out):
    x, y = np.arange(10).reshape(5, 2), np.arange(100, 108).reshape(4, 2)
    column = concat(x, y).columns.columns[0]
    out = np.zeros((len(wanted), 2), np.int64) if with_out else None
    taken = column.take(np.array(wanted, np.int64), out)
    assert np.array_equal(taken, np.concatenate([x, y])[wanted].reshape(-1, 2))
    assert out is None or taken is out


def test_columns_of_strings_are_joined_too():
    made = concat(arrays(["a", "b"]), arrays(["c"]))
    assert made.columns.columns[0].take(np.array([2, 0])) == ["c", "a"]


def test_members_of_different_kinds_have_no_common_columns():
    for other in (np.zeros(3), np.zeros((3, 3), np.int64), arrays(x=[1]), [1, 2]):
        assert concat(np.arange(3), other).columns is None


weights = st.integers(1, 12).map(lambda w: w / 4)
mixes = st.lists(st.tuples(st.integers(1, 12), weights), min_size=1, max_size=5)


def expected_draws(members, count):
    """The first draws by exact arithmetic."""
    draws = [
        (Fraction(2 * j + 1, 2) / Fraction(weight), k, j)
        for k, (_, weight) in enumerate(members)
        for j in range(count)
    ]
    return [(k, j) for _, k, j in sorted(draws)][:count]


def chosen(members, stop):
    made = choose([[(k, i) for i in range(n)] for k, (n, _) in enumerate(members)], [w for _, w in members], stop)
    return list(made)


@given(mixes, st.integers(1, 60))
def test_choose_draws_in_proportion_for_as_long_as_asked(members, count):
    wanted = [(k, j % members[k][0]) for k, j in expected_draws(members, count)]
    assert chosen(members, count) == wanted


@given(mixes)
def test_choose_until_the_first_runs_out_gives_nothing_twice_and_could_not_go_on(members):
    got = chosen(members, "first")
    assert max(Counter(got).values()) == 1
    following = expected_draws(members, len(got) + 1)
    assert got == following[:-1]
    k, j = following[-1]
    assert j == members[k][0]


@given(mixes)
def test_choose_until_all_are_drawn_leaves_nothing_out_and_stops_at_once(members):
    got = chosen(members, "all")
    everything = {(k, i) for k, (n, _) in enumerate(members) for i in range(n)}
    assert set(got) == everything
    assert set(got[:-1]) != everything


def test_choose_ends_well_where_times_are_rounded():
    # 0.86 * (7.5 / 0.86) is a little less than 7.5
    assert list(choose([range(7)], [0.86])) == list(range(7))


def test_choose_without_weights_means_equal_weights():
    assert list(choose([["a", "b"], [1, 2]])) == ["a", 1, "b", 2]


def test_choose_holds_small_picks_and_ranks_only():
    made = choose([range(1000), range(1000)])
    assert (made.picks.dtype, made.ranks.dtype, len(made)) == (np.uint8, np.int64, 2000)
    many = choose([[k] for k in range(300)])
    assert many.picks.dtype == np.uint16
    assert list(many) == list(range(300))


def test_columns_of_choose_agree_with_its_samples():
    made = choose([np.arange(3), np.arange(10, 20)], [1, 3], "all")
    everything = np.arange(len(made))
    assert made.columns.columns[0].take(everything).tolist() == [int(x) for x in made.fetch(everything, 0)]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: choose([[1], []]), "source 1 of choose is empty"),
        (lambda: choose([[1], [2]], [1]), "2 sources and 1 weights"),
        (lambda: choose([[1], [2]], [1, 0]), "above zero"),
        (lambda: choose([[1], [2]], [1, float("nan")]), "above zero"),
        (lambda: choose([[1], [2]], stop="never"), "stop must be"),
        (lambda: choose([[1], [2]], stop=0), "stop must be"),
        (lambda: choose([[1], [2]], stop=True), "stop must be"),
    ],
)
def test_a_mix_that_cannot_work_is_refused(make, message):
    with pytest.raises(PipelineError, match=message):
        make()


@pytest.mark.parametrize("make", [zip, concat, lambda *members: choose(members)])
def test_mixes_survive_pickling(make):
    made = make(np.arange(3), np.arange(3))
    copy = cloudpickle.loads(cloudpickle.dumps(made))
    assert copy.fetch(np.arange(3), 0) == made.fetch(np.arange(3), 0)
    assert len(copy.columns.columns) == len(made.columns.columns)
