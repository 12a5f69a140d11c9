"""Coders: what schemes that store a matrix in few bits leave of it."""
