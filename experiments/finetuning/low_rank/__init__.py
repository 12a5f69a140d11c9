"""Full fine-tunes under other trainings, the spectra of their increments, and their tables."""
