"""Who does the tasks: the loop itself, threads, or processes; one small protocol, one file each."""

from infeed.workers.crew import Crew, Job
from infeed.workers.inline import InlineCrew
from infeed.workers.threads import ThreadCrew

__all__ = ["Crew", "InlineCrew", "Job", "ThreadCrew"]
