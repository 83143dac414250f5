"""Every exception infeed raises of its own accord.

    InfeedError
    ├── PipelineError (ValueError)      an argument, a pipeline or a plan that cannot work
    ├── LayoutError (ValueError)        a sample that does not fit with the others of its batch
    ├── StateError (ValueError)         a state that belongs to another pipeline
    ├── OutOfMemory (MemoryError)       no room for the slots, said before anything is written
    └── WorkerError (RuntimeError)
        ├── WorkerDied                  workers die and replacing them does not help
        ├── SampleKilledWorker          one sample that kills every worker that touches it
        └── Stalled (TimeoutError)      nothing came within `timeout`; carries the workers' stacks

An exception raised by the user's own code keeps its type and gets notes that name the sample, the
stage and the worker.
"""


class InfeedError(Exception):
    """The base of all exceptions of infeed.

    >>> issubclass(PipelineError, InfeedError)
    True
    """


class PipelineError(InfeedError, ValueError):
    """An argument, a pipeline or a plan that cannot work; raised at construction.

    >>> issubclass(PipelineError, ValueError)
    True
    """


class LayoutError(InfeedError, ValueError):
    """A sample whose structure, dtype or shape does not fit with the others of its batch.

    >>> issubclass(LayoutError, ValueError)
    True
    """


class StateError(InfeedError, ValueError):
    """A state that belongs to another pipeline; the message says what differs.

    >>> issubclass(StateError, ValueError)
    True
    """


class OutOfMemory(InfeedError, MemoryError):
    """Not enough memory for the slots, found out before anything was written.

    >>> issubclass(OutOfMemory, MemoryError)
    True
    """


class WorkerError(InfeedError, RuntimeError):
    """Something is wrong with the workers, not with a sample.

    >>> issubclass(WorkerError, RuntimeError)
    True
    """


class WorkerDied(WorkerError):
    """Workers die again and again, and replacing them does not help.

    >>> issubclass(WorkerDied, WorkerError)
    True
    """


class SampleKilledWorker(WorkerError):
    """One sample ends every worker process that touches it; the message names the sample.

    >>> issubclass(SampleKilledWorker, WorkerError)
    True
    """


class Stalled(WorkerError, TimeoutError):
    """No batch came within `timeout` seconds; the message holds the stack of every worker.

    >>> issubclass(Stalled, TimeoutError)
    True
    """
