"""What every source must keep to, as a class of tests to subclass."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from infeed.crews import Mode, Workers
from infeed.pipeline import Pipeline
from infeed.sources import Column, IterableSource, Source, as_source
from infeed.sources.source import IntArray
from infeed.testing.comparing import difference
from infeed.testing.streams import MODES, check_resume, check_stream
from infeed.trees import Tree


class SourceContract:
    """Subclass it with a `make_source`, name the class `Test...`, and pytest runs the contract on your source.

    `make_source` returns a source, a pipeline before `.batch()`, or anything that `infeed.source` takes, with
    at least two samples; it is called for every test. Of a long source only the first `most` samples are
    looked at. Set `collate` for samples that cannot be stacked, and `modes` for a source that cannot run
    everywhere.

    >>> class TestSquares(SourceContract):
    ...     def make_source(self):
    ...         return [{"x": number * number} for number in range(10)]
    >>> TestSquares().test_samples_come_in_the_order_asked_for()
    """

    collate: str = "stack"
    modes: Sequence[Mode | Workers] = MODES
    most: int = 40

    def make_source(self) -> Any:
        """A new source, the same at every call."""
        raise NotImplementedError(f"{type(self).__name__} must define make_source()")

    # -- samples

    def test_its_length_is_a_number_that_stays(self) -> None:
        source = self._source()
        before = len(source)
        assert before >= 2, f"a source with {before} samples shows nothing; make_source() must give at least 2"
        source.fetch(self._some(source), 0)
        assert len(source) == before, f"the length was {before}, and after reading {len(source)}"

    def test_samples_come_in_the_order_asked_for(self) -> None:
        source = self._source()
        backwards = self._some(source)[::-1].copy()
        wanted = [source[int(index)] for index in backwards]
        _same(source.fetch(backwards, 0), wanted, "fetch() and one sample after the other")

    def test_a_sample_can_be_asked_for_twice_in_one_call(self) -> None:
        source = self._source()
        first, last = source[0], source[len(source) - 1]
        twice = np.array([0, len(source) - 1, 0], np.int64)
        _same(source.fetch(twice, 0), [first, last, first], "samples asked for twice")

    def test_one_sample_alone_is_the_same_as_among_others(self) -> None:
        source = self._source()
        some = self._some(source)
        wanted = [source.fetch(np.array([index], np.int64), 1)[0] for index in some]
        _same(source.fetch(some, 1), wanted, "many samples in a call and one")

    def test_reading_again_gives_the_same_samples_in_every_epoch(self) -> None:
        source = self._source()
        some = self._some(source)
        for epoch in (0, 1, 7):
            first = source.fetch(some, epoch)
            source.fetch(some[::-1].copy(), epoch + 1)
            _same(source.fetch(some, epoch), first, f"epoch {epoch} read twice")

    def test_the_indices_asked_for_are_left_alone(self) -> None:
        source = self._source()
        some = self._some(source)
        source.fetch(some, 0)
        assert some.tolist() == list(range(len(some))), "fetch() changed the array of indices it was given"

    def test_an_index_from_the_end_counts_as_in_a_list(self) -> None:
        source = self._source()
        _same([source[-1], source[-len(source)]], [source[len(source) - 1], source[0]], "negative indices")

    def test_an_index_beyond_the_end_is_refused(self) -> None:
        source = self._source()
        for index in (len(source), -len(source) - 1):
            try:
                source[index]
            except IndexError:
                continue
            raise AssertionError(f"source[{index}] of {len(source)} samples gave no IndexError")

    # -- columns

    def test_its_columns_hold_what_its_samples_hold(self) -> None:
        source = self._source()
        if source.columns is None:
            return
        some = self._some(source)
        tree, columns = source.columns.tree, source.columns.columns
        assert tree.size == len(columns), f"{len(columns)} columns for a sample with {tree.size} leaves"
        samples = source.fetch(some, 0)
        assert Tree.of(samples[0]) == tree, "the columns have another structure than the samples"
        for name, column, leaves in zip(tree.names, columns, tree.columns(samples), strict=True):
            _same(_rows(column, some), [_row(leaf) for leaf in leaves], f"column {name!r} and the samples")

    def test_a_column_has_the_dtype_and_shape_it_says(self) -> None:
        for name, column, some in self._fixed_columns():
            rows = np.asarray(column.take(some))
            said, came = (column.dtype, (len(some), *(column.shape or ()))), (rows.dtype, rows.shape)
            assert came == said, f"column {name!r} says {said} and gives {came}"

    def test_a_column_writes_into_the_memory_it_is_given(self) -> None:
        for name, column, some in self._fixed_columns():
            out = np.empty((len(some), *(column.shape or ())), column.dtype)
            out[...] = _junk(column)
            column.take(some, out)
            found = difference(out, np.asarray(column.take(some)))
            assert not found, f"column {name!r} with out= and without: {found}"

    def test_what_a_column_gives_is_not_the_sources_own_memory(self) -> None:
        for name, column, some in self._fixed_columns():
            rows = np.asarray(column.take(some))
            kept = rows.copy()
            assert rows.flags.writeable, f"column {name!r} gives memory that cannot be written"
            rows[...] = _junk(column)
            found = difference(np.asarray(column.take(some)), kept)
            assert not found, f"writing into what column {name!r} gave has changed the source: {found}"

    # -- travelling and working

    def test_a_pickled_copy_gives_the_same_samples(self) -> None:
        import cloudpickle

        source = self._source()
        again = pickle.loads(cloudpickle.dumps(source, protocol=5))
        some = self._some(source)
        _same(again.fetch(some, 0), source.fetch(some, 0), "a pickled copy and the source")

    def test_threads_may_read_at_once_if_it_says_so(self) -> None:
        source = self._source()
        if not source.thread_safe:
            return
        some = self._some(source)
        wanted = source.fetch(some, 0)
        with ThreadPoolExecutor(4) as pool:
            for got in pool.map(lambda _: source.fetch(some, 0), range(32)):
                _same(got, wanted, "read by several threads at once")

    def test_it_can_be_printed(self) -> None:
        source = self._source()
        shown = repr(source)
        assert str(len(source)) in shown, f"{shown} does not say how many samples there are"

    def test_its_stream_is_the_same_in_every_mode(self) -> None:
        check_stream(self._pipeline(), modes=self.modes)

    def test_its_stream_can_be_resumed_at_every_step(self) -> None:
        check_resume(self._pipeline(), modes=self.modes)

    # -- within

    def _source(self) -> Source:
        made = as_source(self.make_source())
        if isinstance(made, IterableSource):
            raise TypeError("an iterable has no samples by index; test it with check_stream and check_resume")
        return made

    def _some(self, source: Source) -> IntArray:
        return np.arange(min(len(source), self.most), dtype=np.int64)

    def _pipeline(self) -> Pipeline:
        """Shuffled, in batches of which the last is short."""
        source = self._source()
        count = min(len(source), self.most)
        size = next((size for size in (7, 6, 5, 4, 3) if count > size and count % size), 1)
        return Pipeline(source).take(count).shuffle(seed=7).batch(size, collate=self.collate)

    def _fixed_columns(self) -> list[tuple[str, Column, IntArray]]:
        """The columns whose rows all have one dtype and shape."""
        source = self._source()
        if source.columns is None:
            return []
        named = zip(source.columns.tree.names, source.columns.columns, strict=True)
        some = self._some(source)[::-1].copy()
        return [
            (name, column, some)
            for name, column in named
            if column.dtype is not None and not column.dtype.hasobject
        ]


def _rows(column: Column, indices: IntArray) -> list[Any]:
    return [_row(row) for row in column.take(indices)]


def _junk(column: Column) -> Any:
    """A value of the column's dtype that its rows hardly have."""
    assert column.dtype is not None
    return np.frombuffer(b"\x01" * column.dtype.itemsize, column.dtype)[0]


def _row(value: Any) -> Any:
    """A row that may be a Python number here and one of numpy's there."""
    return np.asarray(value) if isinstance(value, bool | int | float | complex | np.generic) else value


def _same(got: Sequence[Any], wanted: Sequence[Any], what: str) -> None:
    assert len(got) == len(wanted), f"{what}: {len(got)} samples and {len(wanted)}"
    for place, (mine, other) in enumerate(zip(got, wanted, strict=True)):
        found = difference(mine, other)
        assert not found, f"{what} are not the same, number {place}: {found}"
