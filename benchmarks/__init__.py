"""How fast infeed is beside other loaders: `python -m benchmarks.run`, explained in docs/benchmarks.md.

run.py       the command line
works.py     what is measured, who takes part, and what is wanted of it
data.py      the datasets; one object serves every contestant
ours.py      infeed as a contestant        peers.py    the others        limits.py   what the machine can do
turns.py     how one turn of a contestant is timed
rounds.py    every contestant in its own process, turns interleaved
verdicts.py  medians, ratios, met or not met
memory.py    memory of the process tree over epochs
machine.py   where it ran                  report.py   tables, PNG, JSON, docs
"""
