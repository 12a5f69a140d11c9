"""Tests, speed and memory on a machine with an NVIDIA card, by one command in limited time.

Run ``python -m benchmarks.cuda --out FOLDER [--minutes 9]`` from the checkout, installed or not.

- ``runner``: runs one check after the other, each in a process of its own, which may fail, hang or
  die.
- ``session``: the side of such a process, with its rows, deadline and device.
- ``comparison``: time and memory of rivals, measured in one process.
- ``device``, ``suite``, ``transforms``, ``layers``, ``models``, ``simulation``, ``analysis``: the
  checks.
- ``report``: the table of results.
"""
