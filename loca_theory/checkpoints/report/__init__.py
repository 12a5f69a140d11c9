"""What tables, sentences and proposals say of an analysis."""
