"""Coordinates of orthonormal bases: the bases, and how their coordinates are chosen."""
