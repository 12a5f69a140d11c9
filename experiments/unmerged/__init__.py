"""Results of ``loca-theory unmerge`` on trained adapters, and on changes that are not adapters."""
