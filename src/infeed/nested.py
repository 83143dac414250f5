"""A pipeline as the source of another one: its order and its maps, sample by sample."""

from __future__ import annotations

import threading
from typing import Any

from infeed.order import Chain
from infeed.recipe import Recipe
from infeed.runner import Runner
from infeed.samples import IntArray
from infeed.sources import Source


class PipelineSource(Source):
    """The samples of a pipeline by position; randomness in it belongs to the position within it."""

    def __init__(self, recipe: Recipe, chain: Chain, fields: str):
        self.recipe = recipe
        self.chain = chain
        self._fields = fields
        self._own = threading.local()  # a runner has one generator, which threads must not share

    def __len__(self) -> int:
        return self.chain.size

    def fetch(self, indices: IntArray, epoch: int) -> list[Any]:
        """The samples at these positions of the pipeline."""
        runner: Runner | None = getattr(self._own, "runner", None)
        if runner is None:
            runner = self._own.runner = Runner(self.recipe, "inline")
        return runner.samples_at(self.chain.at(indices, epoch), indices.tolist(), epoch)

    @property
    def fields(self) -> str:
        """What is known of the source's fields, where no map changes them."""
        return self._fields

    def __getstate__(self) -> dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "_own"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._own = threading.local()
