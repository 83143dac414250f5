"""infeed keeps accelerators fed: batches prepared in parallel and handed over without a copy."""

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
