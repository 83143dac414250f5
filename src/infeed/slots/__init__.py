"""Memory that batches live in: segments, the arena that owns slots, and leases that give them back."""

from infeed.slots.arena import Arena, Slot
from infeed.slots.leases import Lease
from infeed.slots.segments import Segment, free_memory, share, shared_if_large

__all__ = ["Arena", "Lease", "Segment", "Slot", "free_memory", "share", "shared_if_large"]
