"""Real checkpoints: open a base and a fine-tuned one, and analyse their increments."""
