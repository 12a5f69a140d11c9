"""The HTML page of a result: complete in one file, and readable without scripts."""
