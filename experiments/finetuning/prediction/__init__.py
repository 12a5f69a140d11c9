"""Numbers that may predict which adapter wins, and how well they do."""
