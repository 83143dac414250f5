"""How many cores are ours: the affinity, the container's quota, our share among the machine's ranks."""

from __future__ import annotations

import math
import os
from pathlib import Path


def quota(root: Path = Path("/sys/fs/cgroup")) -> float:
    """Cores that the control group allows; infinite where it sets no limit.

    >>> quota(Path("/nonexistent"))
    inf
    """
    try:
        allowed, period = (root / "cpu.max").read_text().split()[:2]
        return math.inf if allowed == "max" else int(allowed) / int(period)
    except (OSError, ValueError):
        pass
    try:
        allowed = (root / "cpu/cpu.cfs_quota_us").read_text()
        period = (root / "cpu/cpu.cfs_period_us").read_text()
        return int(allowed) / int(period) if int(allowed) > 0 else math.inf
    except (OSError, ValueError):
        return math.inf


def available(environment: dict[str, str] | None = None, root: Path = Path("/sys/fs/cgroup")) -> int:
    """Cores this process may count on, at least one.

    >>> available({"LOCAL_WORLD_SIZE": "1000"})
    1
    """
    environment = dict(os.environ) if environment is None else environment
    if hasattr(os, "sched_getaffinity"):
        cores: float = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    cores = min(cores, quota(root))
    try:
        ranks = max(1, int(environment.get("LOCAL_WORLD_SIZE", "1")))
    except ValueError:
        ranks = 1
    return max(1, int(cores / ranks))
