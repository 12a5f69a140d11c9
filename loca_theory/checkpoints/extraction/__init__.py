"""Conversion of a fine-tune to adapters that PEFT loads, and their check in the loaded model."""
