"""Which sample comes when: orders are pure functions from positions of an epoch to indices."""

from infeed.order.chain import Chain
from infeed.order.given import Given
from infeed.order.order import IntArray, Order
from infeed.order.parts import Part, Rest, fold_parts, split_parts
from infeed.order.seeds import as_seed
from infeed.order.shuffled import BlockShuffled, Shuffled
from infeed.order.views import Repeat, Shard, Slice, Subset
from infeed.order.weighted import Weighted, balanced_weights

__all__ = [
    "BlockShuffled",
    "Chain",
    "Given",
    "IntArray",
    "Order",
    "Part",
    "Repeat",
    "Rest",
    "Shard",
    "Shuffled",
    "Slice",
    "Subset",
    "Weighted",
    "as_seed",
    "balanced_weights",
    "fold_parts",
    "split_parts",
]
