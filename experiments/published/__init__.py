"""Fine-tunes that others published with their base: what each form of adapter retains of them."""
