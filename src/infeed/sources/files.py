"""Samples from files: a pattern, a folder or a list of paths, and a function that reads one."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from infeed.errors import PipelineError
from infeed.sources.source import IntArray, Source
from infeed.sources.strings import Strings


class FilesSource(Source):
    """What `files` makes: sample i is `read(paths[i])`.

    >>> FilesSource(Strings(["a.txt", "b.txt"]), read=str.upper)[1]
    'B.TXT'
    """

    def __init__(self, paths: Strings[str], read: Callable[[str], Any] | None = None):
        self.paths = paths
        self.read = read

    def __len__(self) -> int:
        return len(self.paths)

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        read = self.read or read_bytes
        return [_read(read, path) for path in self.paths.__getitems__(indices)]

    @property
    def thread_safe(self) -> bool:
        return self.read is None

    @property
    def fields(self) -> str:
        return "bytes" if self.read is None else ""


def files(
    pattern: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
    read: Callable[[str], Any] | None = None,
) -> FilesSource:
    """Samples from files: a glob pattern (`**` for any depth), a folder (every file below it, hidden ones
    left out), or the paths themselves. `read` gets a path and returns a sample; without it, a sample is the
    bytes of the file.

    What a pattern or a folder finds is sorted, so that the order is the same on every machine; a list of
    paths keeps its order.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> for name in ("b.txt", "a.txt"):
    ...     _ = pathlib.Path(folder.name, name).write_text(name * 2)
    >>> files(folder.name + "/*.txt")[0]
    b'a.txta.txt'
    >>> files(folder.name, read=os.path.basename)[1]
    'b.txt'
    >>> folder.cleanup()
    """
    if read is not None and not callable(read):
        raise PipelineError(f"read must be a function of a path, and is of type {type(read).__name__}")
    if isinstance(pattern, bytes):
        raise PipelineError("files takes paths as text; decode them with os.fsdecode")
    if isinstance(pattern, str | os.PathLike):
        return FilesSource(Strings(_found(Path(pattern).expanduser())), read)
    paths: Strings[str] = Strings(os.fspath(path) for path in pattern)
    if not len(paths):
        raise PipelineError("the list of files is empty: there is no sample to load")
    return FilesSource(paths, read)


def _read(read: Callable[[str], Any], path: str) -> Any:
    """A sample; what `read` raises says which file it was."""
    try:
        return read(path)
    except Exception as error:
        note = f"while reading {path!r}"
        if note not in getattr(error, "__notes__", ()):
            error.add_note(note)
        raise


def read_bytes(path: str) -> bytes:
    """The content of a file.

    >>> read_bytes(os.devnull)
    b''
    """
    return Path(path).read_bytes()


def _found(pattern: Path) -> list[str]:
    if pattern.is_file():  # also a name that looks like a pattern, as img[1].png
        return [str(pattern)]
    is_folder = pattern.is_dir()
    wanted = f"{glob.escape(str(pattern))}/**" if is_folder else str(pattern)
    # not Path.glob: it refuses absolute patterns, and what its ** finds differs between versions of Python
    matches = glob.iglob(wanted, recursive=True)
    # a pattern with ** twice finds the same file more than once
    found = {path for path in matches if os.path.isfile(path)}  # a Path each would cost more
    if not found:
        what = "there is no file below the folder" if is_folder else "no file matches"
        raise PipelineError(f"{what} {str(pattern)!r} (looked from {Path.cwd()}); check the path")
    return sorted(found)
