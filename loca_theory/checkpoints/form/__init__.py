"""The best adapters of a size, the split of a total among layers, and PEFT's files."""
