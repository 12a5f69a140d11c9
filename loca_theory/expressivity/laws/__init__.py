"""Laws of singular values and of order statistics: exact expectations, and draws."""
