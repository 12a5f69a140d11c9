"""Increments: of a base and a fine-tune side by side, or of an adapter of PEFT."""
