"""Sizes of adapters: what is asked for, and the split of a total among layers."""
