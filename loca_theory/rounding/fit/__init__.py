"""Adapters that lie nearest to the rounding cells of all entries."""
