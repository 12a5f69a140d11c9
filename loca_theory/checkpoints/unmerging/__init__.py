"""The adapter that was merged into a checkpoint, from the stored pair."""
