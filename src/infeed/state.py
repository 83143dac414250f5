"""Where a loader is in its stream, as a small dict; and whether a dict belongs to this pipeline."""

from __future__ import annotations

from typing import Any

from infeed.errors import StateError
from infeed.pipeline import Pipeline

VERSION = 1


def fingerprint(pipeline: Pipeline) -> dict[str, Any]:
    """What two pipelines must have in common for a state to mean the same in both.

    The number of workers, the mode, and how a global batch is divided among replicas are not among it.

    >>> import infeed
    >>> fingerprint(infeed.arrays([1, 2, 3]).batch(2))["samples"]
    3
    """
    plan = pipeline.plan
    scanned = pipeline.scanned
    return {
        "samples": None
        if scanned and not pipeline.orders and not hasattr(pipeline.source, "__len__")
        else pipeline.chain().size,
        "order": [repr(order) for order in pipeline.orders],
        "stages": [f"{stage.kind}({stage.name})" for stage in (*pipeline.stages, *pipeline.batch_stages)],
        "seed": pipeline.random_seed,
        "global batch": plan.global_batch,
        "last": pipeline.batching.last if pipeline.batching else None,
    }


def check(state: Any, pipeline: Pipeline) -> None:
    """`StateError` that says what differs, when a state is not of this pipeline."""
    if not isinstance(state, dict) or state.get("infeed") != VERSION:
        found = state.get("infeed") if isinstance(state, dict) else type(state).__name__
        raise StateError(f"this is no state of an infeed loader (version {VERSION} was expected, {found} came)")
    missing = [key for key in ("epoch", "position", "until", "cursor", "pipeline") if key not in state]
    if missing:
        raise StateError(f"this state of an infeed loader is incomplete: it has no {missing[0]!r}")
    here, there = fingerprint(pipeline), state["pipeline"]
    differing = [key for key in here if here[key] != there.get(key)]
    if differing:
        told = "; ".join(f"{key}: {there.get(key)!r} in the state, {here[key]!r} here" for key in differing)
        raise StateError(f"the state belongs to another pipeline: {told}")


def pack(pipeline: Pipeline, epoch: int, position: int, until: int | None, cursor: Any) -> dict[str, Any]:
    """The state of a loader that has delivered the samples before `position` of `epoch`."""
    return {
        "infeed": VERSION,
        "epoch": epoch,
        "position": position,
        "until": until,
        "cursor": cursor,
        "pipeline": fingerprint(pipeline),
    }
