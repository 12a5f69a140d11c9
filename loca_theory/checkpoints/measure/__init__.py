"""Measurements on one increment, or on two: their rows, and the cells that compute them."""
