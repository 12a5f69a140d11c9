"""Adapters of PEFT as named increments."""
