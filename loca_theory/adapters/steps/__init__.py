"""How far the first steps of training move a weight, and learning rates that move it as far."""
