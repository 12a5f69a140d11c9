"""Checkpoints as named tensors, whatever file, folder or memory they come from."""
