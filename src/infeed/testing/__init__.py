"""Conformance tests for those who write a source or a kind of workers, and checks for any loader.

Subclass a contract in your own tests, and pytest runs it; call a check with a pipeline, a loader, or a
function that makes one. Nothing here imports pytest.
"""

from infeed.testing.comparing import difference
from infeed.testing.source_contract import SourceContract
from infeed.testing.streams import check_resume, check_stream
from infeed.testing.workers_contract import WorkersContract

__all__ = ["SourceContract", "WorkersContract", "check_resume", "check_stream", "difference"]
