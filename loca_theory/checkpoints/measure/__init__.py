"""What is measured on one increment, or on two: its rows, and the cells that compute them."""
