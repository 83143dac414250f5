"""The example runs as its README says, and threads and processes give the same bytes."""

import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import infeed
from infeed.testing import check_stream

pytest.importorskip("PIL", reason="the example reads images with Pillow")

FOLDER = Path(__file__).parents[2] / "examples" / "cats_and_dogs"


@pytest.fixture
def example(monkeypatch):
    """The example's modules, imported from its folder and forgotten afterwards."""
    monkeypatch.syspath_prepend(str(FOLDER))
    for name in ("make_images", "train"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module("train")
    for name in ("make_images", "train"):
        sys.modules.pop(name, None)


@pytest.fixture
def images(example, tmp_path):
    example.make_images(tmp_path, 40)
    return tmp_path


def run(*arguments):
    source = Path(infeed.__file__).parents[1]
    path = os.pathsep.join([str(source), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-W", "error", FOLDER / "train.py", *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_it_runs_and_threads_and_processes_give_the_same_bytes():
    done = run("--images", "40", "--epochs", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert re.search(r"^threads and processes gave the same bytes", done.stdout, re.MULTILINE)
    by_mode = done.stdout.split("\n\n")
    assert [part.splitlines()[0] for part in by_mode[1:3]] == ["4 threads", "4 processes"]
    assert re.findall(r"epoch \d: .*", by_mode[1]) == re.findall(r"epoch \d: .*", by_mode[2])


def test_the_readme_shows_a_command_that_exists():
    command = re.search(r"^python examples/cats_and_dogs/(\S+) (.*)$", (FOLDER / "README.md").read_text(), re.M)
    assert command is not None
    assert (FOLDER / command[1]).is_file()
    assert command[2].split()[::2] == ["--images", "--epochs"]


def test_the_same_images_are_drawn_every_time_and_differ_in_size(example, images, tmp_path):
    again = tmp_path / "again"
    example.make_images(again, 10)
    for path in again.iterdir():
        assert path.read_bytes() == (images / path.name).read_bytes()
    paths = sorted(images.glob("*.jpg"))
    drawn = example.Images(paths)[np.arange(len(paths))]
    assert len({image.shape for image in drawn}) > 20
    assert [path.name[:3] for path in paths].count("dog") == 20


def test_augmented_batches_have_one_size_and_their_own_randomness(example, images):
    training, _ = example.pipelines(images)
    with infeed.Loader(training, workers=0) as loader:
        first, second = loader.batch_at(0, 0), loader.batch_at(0, 1)
        assert first["image"].shape == second["image"].shape == (example.BATCH, example.SIZE, example.SIZE)
        assert first["image"].dtype == np.float32
        assert set(first["label"].tolist()) == {0, 1}
        assert not np.array_equal(loader.batch_at(1, 0)["image"], first["image"])
        assert np.array_equal(loader.batch_at(0, 0)["image"], first["image"])


def test_both_pipelines_give_the_same_stream_in_every_mode(example, images):
    for pipeline in example.pipelines(images):
        check_stream(pipeline)


def test_training_and_validation_share_out_the_images(example, images):
    training, validation = example.pipelines(images)
    taken = [
        set(pipeline.chain().at(np.arange(pipeline.chain().size), epoch=0).tolist())
        for pipeline in (training, validation)
    ]
    assert not taken[0] & taken[1]
    assert taken[0] | taken[1] == set(range(40))


def test_the_model_learns_to_tell_cats_from_dogs(example, images):
    training, validation = example.pipelines(images)
    model = example.Model()
    with infeed.Loader(training, workers=0, epochs=8) as loader, infeed.Loader(validation, workers=0) as held_out:
        before = held_out.average(model.accuracy)
        for batch in loader:
            model.train(batch)
        dogs = held_out.collect(lambda batch: model.probability(batch["image"]))
        assert held_out.average(model.accuracy) > max(before, 0.8)
    assert dogs.shape == (8,)
