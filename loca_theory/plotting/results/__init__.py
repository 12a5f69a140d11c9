"""One module per result: its pictures, and the figures of the paper that show it."""
