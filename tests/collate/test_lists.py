"""List: samples of different sizes kept apart."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from infeed.collate import Heap, List


def collate(*samples: Any) -> Any:
    return List()(list(samples), Heap())


def test_arrays_are_kept_as_they_are() -> None:
    images = [np.zeros((2, 3)), np.zeros((4, 5), "uint8")]
    batch = collate(*({"image": image, "label": row} for row, image in enumerate(images)))
    assert all(came is image for came, image in zip(batch["image"], images, strict=True))
    assert batch["label"].tolist() == [0, 1]


def test_tensors_are_kept_as_they_are() -> None:
    tensors = [torch.zeros(2), torch.zeros(3)]
    assert collate(*tensors)[1] is tensors[1]


@pytest.mark.parametrize(
    "values", [[1.0, None], [1, 2.0], [np.zeros(2), None], [np.zeros(2), 1], ["a", 1], [torch.zeros(2), 1]]
)
def test_any_mixture_is_a_list(values: list[Any]) -> None:
    batch = collate(*values)
    assert type(batch) is list
    assert len(batch) == len(values)


def test_the_list_is_not_the_callers_own() -> None:
    samples = [np.zeros(1), np.zeros(2)]
    batch = List()(samples, Heap())
    samples.clear()
    assert len(batch) == 2
