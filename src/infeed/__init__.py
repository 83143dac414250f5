"""infeed keeps accelerators fed: batches prepared in parallel and handed over without a copy.

The whole public API; each name is loaded when it is first used, so that `import infeed` costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from infeed.api import arrays, choose, concat, files, iterable, source, zip
    from infeed.collate import Concat, List, Pad, Stack
    from infeed.crews import Workers
    from infeed.errors import (
        InfeedError,
        LayoutError,
        OutOfMemory,
        PipelineError,
        SampleKilledWorker,
        Stalled,
        StateError,
        WorkerDied,
        WorkerError,
    )
    from infeed.evaluating import Measurement, measure, timer
    from infeed.loader import Loader
    from infeed.pipeline import Pipeline
    from infeed.plan import Micro, MicroBatches, Plan
    from infeed.slots import share
    from infeed.sources import Strings

__version__ = "0.1.0"

__all__ = [
    "Concat",
    "InfeedError",
    "LayoutError",
    "List",
    "Loader",
    "Measurement",
    "Micro",
    "MicroBatches",
    "OutOfMemory",
    "Pad",
    "Pipeline",
    "PipelineError",
    "Plan",
    "SampleKilledWorker",
    "Stack",
    "Stalled",
    "StateError",
    "Strings",
    "WorkerDied",
    "WorkerError",
    "Workers",
    "arrays",
    "choose",
    "concat",
    "files",
    "iterable",
    "measure",
    "share",
    "source",
    "timer",
    "zip",
]

_HOMES = {
    "infeed.api": ("arrays", "choose", "concat", "files", "iterable", "source", "zip"),
    "infeed.collate": ("Concat", "List", "Pad", "Stack"),
    "infeed.crews": ("Workers",),
    "infeed.evaluating": ("Measurement", "measure", "timer"),
    "infeed.loader": ("Loader",),
    "infeed.pipeline": ("Pipeline",),
    "infeed.plan": ("Micro", "MicroBatches", "Plan"),
    "infeed.slots": ("share",),
    "infeed.sources": ("Strings",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'infeed' has no attribute {name!r}")
    found = getattr(import_module(_HOME_OF.get(name, "infeed.errors")), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
