"""A base and a fine-tune side by side, by the names of their weights."""
