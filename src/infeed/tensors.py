"""Tensors as arrays and back, without importing torch before the user's own samples bring it."""

from __future__ import annotations

import sys
from typing import Any

from numpy.typing import NDArray


def is_tensor(value: Any) -> bool:
    """Whether `value` is a torch tensor; False at no cost while torch is not imported.

    >>> is_tensor(3)
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def to_array(tensor: Any) -> NDArray[Any] | None:
    """The tensor's memory as an array, or None where numpy has no such thing (bfloat16, sparse, on a GPU).

    >>> import torch
    >>> to_array(torch.ones(2))
    array([1., 1.], dtype=float32)
    """
    if type(tensor) is not sys.modules["torch"].Tensor:
        return None
    try:
        array: NDArray[Any] = (tensor.detach() if tensor.requires_grad else tensor).numpy()
    except (TypeError, RuntimeError):  # torch's words for what numpy cannot show
        return None
    return array


def from_array(array: NDArray[Any]) -> Any:
    """A tensor that looks into the array and keeps it alive.

    >>> import numpy as np
    >>> from_array(np.ones(2))
    tensor([1., 1.], dtype=torch.float64)
    """
    import torch

    return torch.from_numpy(array)
