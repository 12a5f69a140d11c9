"""Searches for the adapter that was merged into a matrix: its form, rank and recipe."""
