"""Memory over epochs: the proportional set sizes (PSS) of a whole process tree, added up.

Each contestant runs in a fresh interpreter, which imports only what it needs, and looks at its own tree in
the middle of every epoch, with a batch in hand. PSS counts a page that several processes map once in all;
pages of shared memory that nobody has mapped at that moment (batches on their way in torch) are not in it.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import psutil

from benchmarks import data
from benchmarks.data import Sizes
from benchmarks.machine import ROOT
from benchmarks.ours import InfeedFeed
from benchmarks.peers import BatchUpFeed, LoopFeed, TorchFeed
from benchmarks.turns import Feed

WORKERS = 2
PER_WORKER = 30_000_000
FLAT_SHARE, FLAT_BYTES = 0.02, 8_000_000
CASES = {
    "memory-steps": "1x128x128 float32, step of 800",
    "memory-strings": "a list of a million strings, batch 256",
}


@dataclass(frozen=True)
class Footprint:
    """What one contestant took. `before` is the process with its data and no loader; sizes are in bytes."""

    case: str
    name: str
    before: int
    epochs: list[int]
    slots: int
    error: str = ""

    @property
    def peak(self) -> int:
        """The most that was seen."""
        return max(self.epochs, default=0)

    @property
    def growth(self) -> int:
        """From the first epochs after the start to the last ones."""
        settled = self.epochs[1:]
        if len(settled) < 2:
            return 0
        part = max(1, len(settled) // 4)
        return int(statistics.median(settled[-part:]) - statistics.median(settled[:part]))

    @property
    def allowed(self) -> int | None:
        """What is wanted of infeed: the data once, the slots, and 30 MB for each worker."""
        if not self.name.startswith("infeed"):
            return None
        return self.before + self.slots + WORKERS * PER_WORKER

    @property
    def met(self) -> bool | None:
        """Whether the peak is within what is allowed, and flat."""
        if self.allowed is None or not self.epochs:
            return None
        return self.peak <= self.allowed and self.flat

    @property
    def flat(self) -> bool:
        """Whether epochs add nothing."""
        return self.growth <= max(FLAT_BYTES, FLAT_SHARE * self.peak)

    def as_dict(self) -> dict[str, Any]:
        """Everything, for JSON."""
        return {**asdict(self), "peak": self.peak, "growth": self.growth, "allowed": self.allowed, "met": self.met}


def tree_pss() -> int:
    """PSS of this process and all its descendants."""
    me = psutil.Process()
    return sum(_pss(process.pid) for process in (me, *me.children(recursive=True)))


def _pss(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            for line in file:
                if line.startswith("Pss:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass  # it has just ended
    return 0


# -- the contestants; each returns how to make its feed, its data being in memory already


def _steps(sizes: Sizes) -> dict[str, Callable[[], Callable[[], Feed]]]:
    def make() -> data.Array:
        return data.numbered(sizes.images, 1, 128, 128)

    def ours(share: bool) -> Callable[[], Feed]:
        import infeed

        x = infeed.share(make()) if share else make()
        x.reshape(-1)[::512].sum()  # every page of it mapped here, so that it counts as what was there before
        pipeline = infeed.arrays(x).shuffle(seed=0).batch(infeed.Plan(16, iterations=sizes.step // 16))
        return lambda: InfeedFeed(pipeline, workers=WORKERS, mode="processes")

    def torch() -> Callable[[], Feed]:
        import torch  # noqa: F401  (it belongs to what is there before the loader)

        items = data.Items(make())
        return lambda: TorchFeed(items, sizes.step, WORKERS)

    def batchup() -> Callable[[], Feed]:
        import batchup.data_source  # noqa: F401

        x = make()
        return lambda: BatchUpFeed(x, sizes.step, None, "threads", WORKERS, x[: sizes.step].nbytes)

    def loop() -> Callable[[], Feed]:
        items = data.Items(make())
        return lambda: LoopFeed(items, sizes.step, data.gather)

    return {
        "infeed, 2 processes": lambda: ours(share=False),
        "infeed, 2 processes, share(x)": lambda: ours(share=True),
        "torch, 2 workers": torch,
        "BatchUp, 2 threads": batchup,
        "plain loop": loop,
    }


def _strings(sizes: Sizes) -> dict[str, Callable[[], Callable[[], Feed]]]:
    def ours() -> Callable[[], Feed]:
        import infeed

        names = data.paths(sizes.strings)

        return lambda: InfeedFeed(
            infeed.source(names).shuffle(seed=0).batch(256), workers=WORKERS, mode="processes"
        )

    def torch() -> Callable[[], Feed]:
        import torch  # noqa: F401

        names = data.paths(sizes.strings)
        return lambda: TorchFeed(names, 256, WORKERS)

    return {"infeed, 2 processes": ours, "torch, 2 workers": torch}


_CASES = {"memory-steps": _steps, "memory-strings": _strings}


def footprints(case: str, sizes: Sizes) -> list[Footprint]:
    """Every contestant of a case, one after the other."""
    return [_in_fresh_process(case, name, sizes) for name in _CASES[case](sizes)]


def _in_fresh_process(case: str, name: str, sizes: Sizes) -> Footprint:
    slow = name.startswith("torch") and case == "memory-strings"
    request = {
        "case": case,
        "name": name,
        "epochs": sizes.slow_memory_epochs if slow else sizes.memory_epochs,
        "sizes": asdict(sizes),
    }
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", json.dumps(request)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        return Footprint(case, name, 0, [], 0, done.stderr.strip())
    answer = json.loads(done.stdout.splitlines()[-1])
    return Footprint(case, name, answer["before"], answer["epochs"], answer["slots"])


def _answer(request: dict[str, Any]) -> dict[str, Any]:
    """In the fresh process: make the data, then the loader, then look at every epoch."""
    prepared = _CASES[request["case"]](Sizes(**request["sizes"]))[request["name"]]()
    before = tree_pss()
    feed = prepared()
    seen = []
    for _ in range(request["epochs"]):
        for step, _batch in enumerate(feed.epoch()):
            if step == feed.steps // 2:
                seen.append(tree_pss())
    slots = getattr(feed, "slot_bytes", 0)
    feed.close()
    return {"before": before, "epochs": seen, "slots": slots}


if __name__ == "__main__":
    print(json.dumps(_answer(json.loads(sys.argv[1]))))
