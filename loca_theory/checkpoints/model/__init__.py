"""The model that checkpoints belong to: it gives weights their names, and says what layers are."""
