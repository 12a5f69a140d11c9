"""Comparisons that are fixed before the runs, and the verdicts on them."""
