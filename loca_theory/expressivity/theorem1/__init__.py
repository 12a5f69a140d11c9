"""Theorem 1: where its ordering of the errors holds, and a proof for all large sizes."""
