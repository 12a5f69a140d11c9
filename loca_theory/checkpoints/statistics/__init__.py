"""What is measured on one increment, or on two."""
