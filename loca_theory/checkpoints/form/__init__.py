"""The forms of adapters, one module each, what they share, and folders."""
