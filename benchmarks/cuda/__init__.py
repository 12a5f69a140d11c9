"""All that a machine with an NVIDIA card can tell, by one command, for as long as it is there.

``python -m benchmarks.cuda --out FOLDER [--minutes 9]``, from the checkout, installed or not.

- ``runner``: one check after the other, each in a process of its own, which may fail, hang or die.
- ``session``: what such a process has: its rows, its deadline, its device.
- ``comparison``: time and memory of rivals, measured in one process.
- ``device``, ``suite``, ``transforms``, ``layers``, ``models``, ``simulation``, ``analysis``: the
  checks. ``report``: the table.
"""
