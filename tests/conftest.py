"""After every test: no process, thread, descriptor or shared memory of infeed's is left."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

_PR_SET_CHILD_SUBREAPER = 36
PATIENCE = 3.0


@pytest.fixture(scope="session", autouse=True)
def orphans_come_to_us() -> None:
    """A process whose parent has been killed becomes a child of this one, so that it can be seen and counted."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1)


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Compare what this process holds before and after the test."""
    gc.collect()
    _forget_the_imported()
    before = held()
    yield
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while (left := _more(before, held())) and time.monotonic() < deadline:
        if gc.collect() == 0 and not {"children", "threads"} & set(left):
            break
        time.sleep(0.02)  # a killed process takes a moment to go
        gc.collect()
    assert not left, f"left behind by the test: {left}"


def _forget_the_imported() -> None:
    """What large libraries made when they were imported need not be gone through at every collection."""
    if len(sys.modules) > _imported.get("count", 0) + 200:
        _imported["count"] = len(sys.modules)
        gc.freeze()


_imported: dict[str, int] = {}


def held() -> dict[str, list[str]]:
    """Children (also those of children), threads, descriptors and shared memory of this process."""
    children = []
    for child in psutil.Process().children(recursive=True):
        try:
            if child.status() == psutil.STATUS_ZOMBIE:
                _bury(child.pid)
            else:
                children.append(f"{child.pid} {child.name()}")
        except psutil.NoSuchProcess:
            continue
    threads = [thread.name for thread in threading.enumerate() if thread.name.startswith("infeed")]
    return {
        "children": children,
        "threads": threads,
        "descriptors": _descriptors(),
        "shared memory": [line for line in Path("/proc/self/maps").read_text().splitlines() if "memfd" in line],
    }


def _bury(pid: int) -> None:
    """An orphan that came to us and has ended; our own children have someone who waits for them."""
    try:
        os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        pass


def _descriptors() -> list[str]:
    found = []
    for entry in os.scandir("/proc/self/fd"):
        try:
            found.append(f"{entry.name} -> {os.readlink(entry.path)}")
        except FileNotFoundError:
            continue  # the descriptor of the listing itself
    return [text for text in found if f"/proc/{os.getpid()}/fd" not in text]


def _more(before: dict[str, list[str]], after: dict[str, list[str]]) -> dict[str, list[str]]:
    grown = {kind: sorted(set(after[kind]) - set(before[kind])) for kind in after}
    return {kind: new for kind, new in grown.items() if new and len(after[kind]) > len(before[kind])}
