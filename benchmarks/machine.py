"""Where the figures come from: processor, versions, commit, and who else was busy."""

from __future__ import annotations

import os
import platform
import subprocess
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[1]


def keep_to(cores: int) -> int:
    """Let this process, and all it starts, use only so many cores; returns how many there are."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    os.sched_setaffinity(0, allowed)
    return len(allowed)


@dataclass(frozen=True)
class Machine:
    """The machine and the versions, for people and for JSON."""

    processor: str
    cores: int
    memory: str
    system: str
    python: str
    versions: dict[str, str]
    commit: str
    load: float
    others: float

    @staticmethod
    def here(cores: int) -> Machine:
        """This one. Looks for half a second at what others do."""
        return Machine(
            processor=_processor(),
            cores=cores,
            memory=f"{psutil.virtual_memory().total / 1e9:.0f} GB",
            system=f"{platform.system()} {platform.release()}",
            python=platform.python_version(),
            versions={name: _version(name) for name in ("numpy", "torch", "batchup")},
            commit=_commit(),
            load=os.getloadavg()[0],
            others=psutil.cpu_percent(0.5) / 100 * (psutil.cpu_count() or 1),
        )

    @property
    def warning(self) -> str:
        """What to think of figures from a machine that is not idle; empty when it is."""
        if self.load < 0.5 and self.others < 0.2:
            return ""
        return (
            f"load average {self.load:.1f}, and others use {self.others:.1f} cores right now: "
            "the figures will be noisy, and worse for whoever needs both cores"
        )

    def __str__(self) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        return (
            f"{self.processor}, {self.cores} cores, {self.memory}, {self.system}\n"
            f"Python {self.python}, {versions}, commit {self.commit}, load average {self.load:.2f}"
        )


def _processor() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "missing"


def _commit() -> str:
    short = _git("rev-parse", "--short", "HEAD")
    if not short:
        return "unknown"
    return f"{short} with changes" if _git("status", "--porcelain", "--untracked-files=no") else short


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
