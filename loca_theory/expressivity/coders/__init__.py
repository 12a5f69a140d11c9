"""Coders: schemes that store a matrix in few bits, and the errors that they leave."""
