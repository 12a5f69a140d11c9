"""The forms of adapters, one module each; what they share, the split of a total, and folders."""
