"""files(): a pattern, a folder or a list of paths, read one file a sample."""

import numpy as np
import pytest

from infeed.errors import PipelineError
from infeed.sources import Strings, files


@pytest.fixture
def folder(tmp_path):
    for name in ("b.txt", "a.txt", "deep/er/c.txt", "image[1].png", ".hidden", "x.txt/inner.bin"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(name.encode())
    return tmp_path


def names(made, folder):
    return [path.removeprefix(str(folder) + "/") for path in made.paths]


def test_a_pattern_finds_files_sorted_and_no_folders(folder):
    assert names(files(f"{folder}/*.txt"), folder) == ["a.txt", "b.txt"]
    assert names(files(f"{folder}/**/*.txt"), folder) == ["a.txt", "b.txt", "deep/er/c.txt"]
    assert names(files(folder / "**" / "**" / "*.txt"), folder) == ["a.txt", "b.txt", "deep/er/c.txt"]


def test_a_folder_means_every_file_below_it_but_the_hidden(folder):
    wanted = ["a.txt", "b.txt", "deep/er/c.txt", "image[1].png", "x.txt/inner.bin"]
    assert names(files(folder), folder) == wanted
    assert names(files(f"{folder}/"), folder) == wanted


def test_a_file_whose_name_looks_like_a_pattern_is_found(folder):
    assert files(folder / "image[1].png")[0] == b"image[1].png"


def test_a_folder_whose_name_looks_like_a_pattern_is_searched(folder):
    (folder / "run[1]").mkdir()
    (folder / "run[1]" / "log").write_bytes(b"")
    assert names(files(folder / "run[1]"), folder) == ["run[1]/log"]


def test_a_list_of_paths_keeps_its_order(folder):
    made = files([folder / "b.txt", str(folder / "a.txt")])
    assert names(made, folder) == ["b.txt", "a.txt"]
    assert made.fetch(np.array([1, 0]), 0) == [b"a.txt", b"b.txt"]


def test_the_reader_gets_the_path_as_text(folder):
    made = files(f"{folder}/*.txt", read=lambda path: (type(path), path[-5:]))
    assert made[1] == (str, "b.txt")
    assert not made.thread_safe
    assert files(folder).thread_safe
    assert isinstance(made.paths, Strings)


def test_a_pattern_without_a_match_is_named_with_the_place_it_was_looked_for(folder, monkeypatch):
    monkeypatch.chdir(folder)
    with pytest.raises(PipelineError) as caught:
        files("*.nothing")
    assert "'*.nothing'" in str(caught.value)
    assert str(folder) in str(caught.value)


def test_bad_arguments_of_files_are_refused(folder):
    (folder / "empty").mkdir()
    for bad, message in [(folder / "empty", "no file below"), ([], "empty"), (b"x", "fsdecode")]:
        with pytest.raises(PipelineError, match=message):
            files(bad)
    with pytest.raises(PipelineError, match="read must be a function"):
        files(folder, read="rb")


def test_a_file_gone_since_is_named(folder):
    made = files(folder / "*.txt")
    (folder / "a.txt").unlink()
    with pytest.raises(FileNotFoundError, match=r"a\.txt"):
        made[0]


def test_what_a_reader_raises_says_which_file_it_was(folder):
    def read(path):
        raise ValueError("no picture")

    with pytest.raises(ValueError, match="no picture") as caught:
        files(f"{folder}/a.txt", read=read)[0]
    assert caught.value.__notes__ == [f"while reading '{folder}/a.txt'"]
