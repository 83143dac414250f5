"""`infeed demo`: what threads and processes gain on this machine, shown while it is measured.

works.py      three kinds of loading, as pipelines
measuring.py  one loop that trains and waits, timed
killing.py    a worker killed in the middle of an epoch, the stream compared
report.py     all that was found, as figures and as JSON
words.py      what it means, in sentences
screen.py     the table, live where someone is looking
running.py    the order of events
"""

from infeed.demo.killing import Killing
from infeed.demo.report import Report
from infeed.demo.running import Settings, run

__all__ = ["Killing", "Report", "Settings", "run"]
