"""Looking at batches and evaluating with a loader."""

import numpy as np
import pytest

import infeed
from infeed.evaluating import rows_of


def numbers(n=10, batch=4, **settings):
    return infeed.Loader(infeed.arrays(x=np.arange(float(n))).shuffle(seed=3).batch(batch), workers=0, **settings)


def test_collect_puts_together_what_the_function_returns_for_every_batch():
    with numbers() as loader:
        collected = loader.collect(lambda batch: {"double": batch["x"] * 2, "name": ["a"] * len(batch["x"])})
    assert sorted(collected["double"].tolist()) == [2.0 * i for i in range(10)]
    assert collected["name"] == ["a"] * 10


def test_collect_keeps_the_order_of_the_stream():
    with numbers() as loader:
        order = np.concatenate([loader.indices_at(0, step) for step in range(len(loader))])
        assert loader.collect(lambda batch: batch["x"]).tolist() == order.tolist()


def test_collect_takes_single_numbers_too():
    with numbers() as loader:
        assert loader.collect(lambda batch: float(len(batch["x"]))).tolist() == [4.0, 4.0, 2.0]


def test_average_weighs_each_batch_by_its_size():
    with numbers() as loader:
        assert loader.average(lambda batch: batch["x"].mean()) == pytest.approx(4.5)
        both = loader.average(lambda batch: {"mean": batch["x"].mean(), "size": len(batch["x"])})
    assert both["mean"] == pytest.approx(4.5)
    assert both["size"] == pytest.approx((4 * 4 + 4 * 4 + 2 * 2) / 10)


def test_a_progress_bar_is_drawn_when_asked_for(capsys):
    with numbers() as loader:
        loader.average(lambda batch: 1.0, progress=True)
    assert "average" in capsys.readouterr().err


def test_batch_at_gives_any_batch_again_without_disturbing_the_loop():
    with numbers(epochs=2) as loader:
        seen = []
        for step, batch in enumerate(loader):
            seen.append(batch["x"].copy())
            assert np.array_equal(loader.batch_at(step // 3, step % 3)["x"], batch["x"])
    assert len(seen) == 6


def test_indices_at_names_the_samples_behind_a_batch():
    with numbers() as loader:
        for step, batch in enumerate(loader):
            assert loader.indices_at(0, step).tolist() == batch["x"].astype(int).tolist()
        with pytest.raises(infeed.PipelineError, match="no step 3"):
            loader.indices_at(0, 3)


def test_batch_at_works_on_a_filtered_pipeline_by_going_through_it():
    pipeline = infeed.arrays(x=np.arange(20)).filter(lambda sample: sample["x"] % 2 == 0).batch(3)
    with infeed.Loader(pipeline, workers=0) as loader:
        assert loader.batch_at(0, 1)["x"].tolist() == [6, 8, 10]
        with pytest.raises(infeed.PipelineError, match="no step 9"):
            loader.batch_at(0, 9)
        with pytest.raises(infeed.PipelineError, match="going through the epoch"):
            loader.indices_at(0, 0)


def test_synthetic_gives_one_resident_batch_as_often_as_an_epoch_has_steps():
    with numbers() as loader:
        batches = list(loader.synthetic())
    assert len(batches) == 3
    assert all(batch is batches[0] for batch in batches)


def test_measure_counts_batches_and_samples():
    with numbers() as loader:
        found = infeed.measure(loader, epochs=2)
    assert (found.batches, found.samples) == (3, 10)
    assert "samples/s" in str(found)


def test_measure_refuses_what_gives_no_batch():
    with pytest.raises(infeed.PipelineError, match="no batch"):
        infeed.measure([])


def test_timer_prints_its_name_at_the_end(capsys):
    with infeed.timer("training") as t:
        pass
    assert capsys.readouterr().out.startswith("training: ")
    assert t.seconds >= 0


@pytest.mark.parametrize(
    ("batch", "rows"),
    [
        (np.zeros((3, 2)), 3),
        (["a", "b"], 2),
        ({"x": np.zeros(5), "y": 1}, 5),
        ([np.zeros(4), np.zeros(4)], 4),
        (infeed.MicroBatches([np.zeros(2), np.zeros(3)]), 5),
    ],
)
def test_the_size_of_a_batch_is_found_in_whatever_has_rows(batch, rows):
    assert rows_of(batch) == rows


def test_stats_count_batches_and_outlive_the_loader():
    with numbers() as loader:
        list(loader)
        assert loader.stats().as_dict()["batches"] == 3
    assert loader.stats().samples == 10
    assert 0 <= loader.stats().waiting_share <= 1


def test_average_says_that_it_wants_the_mean_of_a_batch():
    with numbers() as loader, pytest.raises(infeed.PipelineError, match=r"shapes \(4,\) .* \(2,\) .* mean over"):
        loader.average(lambda batch: batch["x"])


@pytest.mark.parametrize("method", ["collect", "average"])
def test_a_function_that_returns_nothing_is_refused(method):
    with numbers() as loader, pytest.raises(infeed.PipelineError, match=f"{method}: the function returned None"):
        getattr(loader, method)(lambda batch: None)


def test_epochs_count_from_zero_and_may_be_numbers_of_numpy():
    with numbers() as loader:
        for look in (loader.batch_at, loader.indices_at):
            with pytest.raises(infeed.PipelineError, match="no epoch -1"):
                look(-1, 0)
        loader.set_epoch(np.int64(3))
        assert loader.epoch == 3
        assert type(loader.state_dict()["epoch"]) is int


def test_stats_of_an_iterable_count_the_samples_that_came():
    with infeed.Loader(infeed.iterable(lambda: iter(range(21))).batch(4), workers=0) as loader:
        list(loader)
        assert loader.stats().samples == 21
