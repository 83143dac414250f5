"""Every failure reaches the loop as an exception that names its cause, and the loop may go on."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

import infeed
from tests.engine.zoo import Items, ManyItems, N, fail_at, frozen, named, stream

MODES = ["inline", "threads", "processes"]
WHO = {"inline": "the loop itself", "threads": "thread ", "processes": "worker process "}


class Odd(Exception):
    """Its constructor takes no single string."""

    def __init__(self, *, code: int, where: str):
        super().__init__(f"code {code} in {where}")
        self.code = code


class Odder(Exception):
    """Takes two arguments, keeps one of them."""

    def __init__(self, left: int, right: int):
        super().__init__(left)
        self.both = left, right


class Unpicklable(Exception):
    """Carries what cannot travel."""

    def __init__(self, text: str):
        super().__init__(text)
        self.handle = (item for item in ())


class Strict(Exception):
    """Its `__new__` wants what only its author knows."""

    def __new__(cls, a: int, b: int, *, c: int) -> Strict:
        return super().__new__(cls)

    def __init__(self, a: int, b: int, *, c: int):
        super().__init__(f"{a} {b} {c}")


def told(error: BaseException) -> str:
    return "\n".join([str(error), *getattr(error, "__notes__", ())])


def walk(loader: Any) -> tuple[list[Any], list[BaseException]]:
    """All batches and all exceptions of one epoch."""
    batches, errors = [], []
    iterator = iter(loader)
    while True:
        try:
            batches.append(frozen(next(iterator)))
        except StopIteration:
            return batches, errors
        except Exception as error:
            errors.append(error)
            assert len(errors) < 100


def at_eleven(value: Any) -> Any:
    """Raises for sample 11, and for any batch or list that holds it."""
    samples = value if isinstance(value, list) else [value]
    if 11 in np.concatenate([np.atleast_1d(sample["y"]) for sample in samples]):
        raise ZeroDivisionError("eleven")
    return value


def item(index: int) -> Any:
    return at_eleven({"x": np.full(3, index, np.float32), "y": index})


class Batched(ManyItems):
    """Raises for a whole call only."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        if 11 in list(indices) and len(indices) > 1:
            raise ZeroDivisionError("eleven is among them")
        return [self.make(int(index)) for index in indices]


def write(sample: Any, out: Any) -> None:
    out["y"][...] = at_eleven(sample)["y"]


BROKEN: dict[str, Any] = {
    "source": lambda: infeed.source(Items(item)).batch(8),
    "__getitems__": lambda: infeed.source(ManyItems(item)).batch(8),
    "map": lambda: named().map(at_eleven).batch(8),
    "out": lambda: named().map(write, out={"y": ((), "int64")}).batch(8),
    "collate": lambda: named().batch(8, collate=at_eleven),
    "map_batch": lambda: named().batch(8).map_batch(at_eleven),
    "nested": lambda: infeed.zip(named().map(at_eleven), named()).map(lambda pair: pair[0]).batch(8),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", BROKEN)
def test_the_users_exception_comes_with_sample_stage_and_worker_and_all_other_batches_come(where, mode):
    with infeed.Loader(BROKEN[where](), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
        again, same = walk(loader)
    assert [type(error) for error in errors + same] == [ZeroDivisionError] * 2
    assert len(batches) == len(again) == 4
    assert errors[0].args == ("eleven",)
    notes = told(errors[0])
    assert "11" in notes
    assert WHO[mode] in notes
    stage = {"source": "the source", "__getitems__": "the source", "out": "write", "nested": "map"}.get(
        where, where
    )
    assert stage in notes
    if mode == "processes":
        assert "at_eleven" in notes  # the traceback of the worker


@pytest.mark.parametrize("mode", MODES)
def test_a_filter_that_raises_names_the_sample_and_the_scan_goes_on(mode):
    def odd(sample: Any) -> bool:
        return bool(at_eleven(sample)["y"] % 2)

    with infeed.Loader(named().repeat(10).filter(odd).batch(8), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
    assert {type(error) for error in errors} == {ZeroDivisionError}
    assert "sample 11 " in told(errors[0])
    assert "filter(odd)" in told(errors[0])
    assert WHO[mode] in told(errors[0])
    assert batches


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("where", ["factory", "iterator", "map"])
def test_an_iterable_that_raises_is_told_of(mode, where):
    def numbers() -> Any:
        if where == "factory":
            raise ZeroDivisionError("eleven")
        for index in range(40):
            yield item(index) if where == "iterator" else {"y": index}

    factory = (lambda: numbers()) if where != "factory" else (lambda: next(numbers()))
    pipeline = infeed.iterable(factory)
    pipeline = pipeline.map(at_eleven) if where == "map" else pipeline
    with infeed.Loader(pipeline.batch(4), workers=2, mode=mode) as loader:
        _, errors = walk(loader)
    assert {type(error) for error in errors} == {ZeroDivisionError}
    assert WHO[mode] in told(errors[0])
    if where != "factory":
        assert "11" in told(errors[0]).replace("(in worker process 1", "")


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("good", [6, 128, 200])
def test_the_samples_before_the_one_an_iterable_raises_at_are_not_lost(mode, good):
    def numbers() -> Any:
        yield from range(good)
        raise OSError("the disk is gone")

    with infeed.Loader(infeed.iterable(numbers).batch(4), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
    assert batches == [frozen(np.arange(low, min(low + 4, good))) for low in range(0, good, 4)]
    assert [type(error) for error in errors] == [OSError]
    assert f"sample {good} of the iterable, epoch 0" in told(errors[0])


@pytest.mark.parametrize("mode", MODES)
def test_a_whole_call_that_raises_though_no_sample_does_is_told_of(mode):
    with infeed.Loader(infeed.source(Batched(lambda i: {"y": i})).batch(8), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
    assert [type(error) for error in errors] == [ZeroDivisionError]
    assert len(batches) == 4
    assert "by none of its samples alone" in told(errors[0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 3, 16])
def test_with_several_small_steps_in_a_slot_only_the_failing_ones_fail(mode, size):
    bad = {0, 5, 6, 50, 171, 199}
    pipeline = infeed.arrays(y=np.arange(200), x=np.arange(200.0)).map(fail_at(*bad)).batch(size)
    fine = stream(infeed.arrays(y=np.arange(200), x=np.arange(200.0)).batch(size), epochs=1, workers=0)[0]
    expected = [batch for step, batch in enumerate(fine) if not bad & set(range(step * size, step * size + size))]
    with infeed.Loader(pipeline, workers=2, mode=mode) as loader:
        for _ in range(3):
            batches, errors = walk(loader)
            assert batches == expected
            assert len(errors) == len(fine) - len(expected)


@pytest.mark.parametrize("mode", MODES)
def test_an_epoch_in_which_all_samples_raise_ends(mode):
    with infeed.Loader(named().map(fail_at(*range(N))).batch(8), workers=2, mode=mode) as loader:
        for _ in range(2):
            batches, errors = walk(loader)
            assert (len(batches), len(errors)) == (0, 5)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    "make",
    [
        lambda: Odd(code=3, where="here"),
        lambda: Odder(1, 2),
        lambda: Unpicklable("with a generator"),
        lambda: Strict(1, 2, c=3),
        lambda: KeyError("missing"),
        lambda: FileNotFoundError(2, "No such file", "picture.jpg"),
        lambda: UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        lambda: ExceptionGroup("several", [ValueError("a"), KeyError("b")]),
        lambda: StopIteration("a stop that means nothing here"),
        lambda: infeed.LayoutError("of the user's own"),
        lambda: TimeoutError("of a socket"),
        lambda: ValueError("x" * 500_000),
        lambda: ValueError(np.zeros(100_000)),
    ],
    ids=lambda make: type(make()).__name__,
)
def test_exceptions_with_odd_constructors_keep_their_type_and_words(mode, make):
    original = make()

    def failing(sample: Any) -> Any:
        if sample["y"] == 11:
            raise make()
        return sample

    with infeed.Loader(named().map(failing).batch(8), workers=2, mode=mode) as loader:
        iterator = iter(loader)
        next(iterator)
        with pytest.raises(Exception) as caught:  # noqa: PT011
            next(iterator)
        assert sum(1 for _ in iterator) == 3
    error = caught.value
    if isinstance(original, StopIteration):
        assert "a stop that means nothing here" in repr(error) + repr(error.__cause__) + told(error)
        return
    assert type(error).__name__ == type(original).__name__
    assert str(original)[:1000] == str(error)[:1000]
    assert "sample 11 " in told(error)
    if isinstance(original, Odd):
        assert error.code == 3
    if isinstance(original, FileNotFoundError):
        assert (error.errno, error.filename) == (2, "picture.jpg")
    if isinstance(original, UnicodeDecodeError):
        assert error.object == b"\xff"


@pytest.mark.parametrize("mode", MODES)
def test_the_same_exception_object_is_not_noted_again_and_again(mode):
    the_one = ValueError("kept by the dataset")

    def failing(sample: Any) -> Any:
        if sample["y"] == 11:
            raise the_one
        return sample

    with infeed.Loader(named().map(failing).batch(8), workers=1, mode=mode) as loader:
        for _ in range(3):
            _, errors = walk(loader)
    assert told(errors[0]).count("sample 11 ") <= 1 or mode != "processes"


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_a_setup_that_raises_is_told_of(mode):
    def setup(worker: int) -> None:
        raise ZeroDivisionError(f"setup of {worker}")

    with (
        infeed.Loader(named().batch(8), workers=2, mode=mode, worker_setup=setup) as loader,
        pytest.raises(ZeroDivisionError, match="setup of") as caught,
    ):
        list(loader)
    assert "worker_setup" in told(caught.value)


@pytest.mark.parametrize("method", [None, "fork", "forkserver", "spawn"])
def test_a_pipeline_that_cannot_be_loaded_in_a_worker_is_told_of(method):
    class Touchy:
        def __len__(self) -> int:
            return 8

        def __getitem__(self, index: int) -> int:
            return index

        def __setstate__(self, state: Any) -> None:
            raise ZeroDivisionError("does not want to travel")

        def __getstate__(self) -> dict[str, int]:
            return {"a": 1}

    settings = {"workers": 2, "mode": "processes", "start_method": method}
    if method == "fork":
        assert len(stream(infeed.source(Touchy()).batch(4), epochs=1, **settings)[0]) == 2
        return
    with (
        infeed.Loader(infeed.source(Touchy()).batch(4), **settings) as loader,
        pytest.raises(ZeroDivisionError, match="travel"),
    ):
        list(loader)


def test_a_len_that_raises_is_told_of_at_construction():
    class Lengthless:
        def __len__(self) -> int:
            raise ZeroDivisionError("no length")

        def __getitem__(self, index: int) -> int:
            return index

    with pytest.raises(ZeroDivisionError, match="no length"):
        infeed.source(Lengthless()).batch(4)


@pytest.mark.parametrize("mode", MODES)
def test_a_shape_that_does_not_fit_names_field_shapes_and_samples(mode):
    def ragged(index: int) -> Any:
        return {"image": np.zeros((3, 4 + (index == 13))), "label": index}

    with infeed.Loader(infeed.source(Items(ragged)).batch(8), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
    assert len(batches) == 4
    assert [type(error).__mro__[-5:] for error in errors] == [type(errors[0]).__mro__[-5:]]
    assert isinstance(errors[0], infeed.LayoutError)
    text = told(errors[0])
    for word in ("image", "[3, 4]", "[3, 5]", "13"):
        assert word in text.replace("(3, 4)", "[3, 4]").replace("(3, 5)", "[3, 5]")
    assert "samples 8 and 13" in text or any(f"samples {other} and 13" in text for other in range(8, 16))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [1, 2, 8])
def test_a_batch_that_as_a_whole_has_another_shape_is_delivered(mode, size):
    def wide(index: int) -> Any:
        return {"x": np.full(3 + (index // 8) % 2, index), "y": f"{index}"}

    with infeed.Loader(infeed.source(Items(wide, 64)).batch(size), workers=2, mode=mode) as loader:
        for _ in range(2):
            shapes = [batch["x"].shape for batch in loader]
            assert shapes == [(size, 3 + (step * size // 8) % 2) for step in range(64 // size)]


@pytest.mark.parametrize("mode", MODES)
def test_fixed_shapes_make_another_shape_an_error(mode):
    def wide(index: int) -> Any:
        return {"x": np.full(3 + (index // 8) % 2, index)}

    with infeed.Loader(infeed.source(Items(wide, 32)).batch(8, fixed_shapes=True), workers=2, mode=mode) as loader:
        batches, errors = walk(loader)
    assert len(batches) == 2
    assert {type(error).__name__ for error in errors} <= {"LayoutError", "Mismatch", "Misfit"}
    assert "sample 8 " in told(errors[0])


@pytest.mark.parametrize("mode", MODES)
def test_changes_of_dtype_and_structure_are_never_cast_away(mode):
    def changing(index: int) -> Any:
        kinds = [np.float32(1), np.float64(index), 2.5, np.arange(3), "text", {"a": 1}, None, (1, 2)]
        return {"x": kinds[index // 4 % len(kinds)], "y": index}

    def expected(step: int) -> Any:
        return [np.float32, np.float64, np.float64, np.int64][step] if step < 4 else None

    with infeed.Loader(infeed.source(Items(changing, 32)).batch(4), workers=2, mode=mode) as loader:
        batches = list(loader)
    for step in range(4):
        assert batches[step]["x"].dtype == expected(step)
    assert batches[3]["x"].shape == (4, 3)
    assert batches[4]["x"] == ["text"] * 4
    assert batches[5]["x"]["a"].tolist() == [1] * 4
    assert batches[6]["x"] == [None] * 4
    assert stream(infeed.source(Items(changing, 32)).batch(4), workers=0)[0] == [frozen(b) for b in batches]


# -- on_error="replace"


@pytest.mark.parametrize("where", ["source", "__getitems__", "map", "out", "nested"])
def test_a_replaced_sample_is_the_same_in_every_mode_and_is_listed(where):
    pipeline = BROKEN[where]()
    expected = stream(pipeline, workers=0, on_error="replace")
    assert len(expected[0]) == 5
    for mode in MODES:
        with infeed.Loader(pipeline, workers=2, mode=mode, on_error="replace") as loader:
            given = [[frozen(batch) for batch in loader] for _ in range(2)]
            listed = sorted((bad.epoch, bad.index, type(bad.error)) for bad in loader.bad_samples if bad.epoch < 2)
        assert given == expected
        assert listed == [(0, 11, ZeroDivisionError), (1, 11, ZeroDivisionError)]


def test_replacing_keeps_size_and_place_and_takes_a_good_sample():
    bad = set(range(0, 200, 3))
    pipeline = infeed.arrays(y=np.arange(200)).shuffle(5).map(fail_at(*bad)).batch(7)
    with infeed.Loader(pipeline, workers=2, mode="processes", on_error="replace") as loader:
        for epoch in range(2):
            given = np.concatenate([batch["y"] for batch in loader])
            wanted = np.concatenate([loader.indices_at(epoch, step) for step in range(len(loader))])
            good = np.array([index not in bad for index in wanted.tolist()])
            assert np.array_equal(given[good], wanted[good])
            assert not bad & set(given.tolist())
        assert {bad_sample.index for bad_sample in loader.bad_samples} == bad


@pytest.mark.parametrize("mode", MODES)
def test_when_no_sample_is_good_replacing_raises(mode):
    with (
        infeed.Loader(named().map(fail_at(*range(N))).batch(8), workers=2, mode=mode, on_error="replace") as loader,
        pytest.raises(ZeroDivisionError),
    ):
        next(iter(loader))


@pytest.mark.parametrize("mode", MODES)
def test_a_scanned_pipeline_leaves_bad_samples_out(mode):
    pipeline = named().map(fail_at(3, 20)).filter(lambda sample: sample["y"] % 2).batch(4)
    with infeed.Loader(pipeline, workers=2, mode=mode, on_error="replace") as loader:
        given = np.concatenate([batch["y"] for batch in loader]).tolist()
        assert sorted({bad.index for bad in loader.bad_samples}) == [3, 20]
    assert given == [index for index in range(1, N, 2) if index != 3]


@pytest.mark.parametrize("mode", MODES)
def test_a_map_behind_a_filter_that_raises_is_replaced_or_left_out(mode):
    pipeline = named().filter(lambda sample: sample["y"] % 2).map(fail_at(3)).batch(4)
    with infeed.Loader(pipeline, workers=2, mode=mode, on_error="replace") as loader:
        given = np.concatenate([batch["y"] for batch in loader]).tolist()
        assert {bad.index for bad in loader.bad_samples} == {3}
    assert 3 not in given


@pytest.mark.parametrize("mode", MODES)
def test_an_iterable_with_bad_samples_leaves_them_out(mode):
    pipeline = infeed.iterable(lambda: ({"y": i} for i in range(40))).map(fail_at(3, 20)).batch(4)
    with infeed.Loader(pipeline, workers=2, mode=mode, on_error="replace") as loader:
        given = np.concatenate([batch["y"] for batch in loader]).tolist()
    assert given == [index for index in range(40) if index not in (3, 20)]


# -- stalls


@pytest.mark.parametrize("mode", ["threads", "processes"])
def test_a_stall_shows_the_stacks_of_the_workers_and_the_loop_may_wait_again(mode):
    def dawdling_function(sample: Any) -> Any:
        if sample["y"] == 11:
            time.sleep(1.5)
        return sample

    with infeed.Loader(named().map(dawdling_function).batch(8), workers=2, mode=mode, timeout=0.5) as loader:
        iterator, batches, stalls = iter(loader), 0, []
        while True:
            try:
                next(iterator)
                batches += 1
            except StopIteration:
                break
            except infeed.Stalled as stalled:
                stalls.append(str(stalled))
    assert batches == 5
    assert any("dawdling_function" in text for text in stalls)
    assert "timeout=0.5" in stalls[0]


def test_closing_does_not_wait_for_a_worker_that_hangs():
    def hanging(sample: Any) -> Any:
        if sample["y"] == 11:
            time.sleep(1000)
        return sample

    with (
        infeed.Loader(named().map(hanging).batch(8), workers=2, mode="processes", timeout=3) as loader,
        pytest.raises(infeed.Stalled, match="hanging"),
    ):
        list(loader)
