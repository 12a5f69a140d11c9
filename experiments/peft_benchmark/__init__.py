"""PEFT's public comparison of methods, beside what the first step of training predicts."""
