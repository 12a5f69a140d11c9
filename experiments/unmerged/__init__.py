"""What ``loca-theory unmerge`` finds of adapters that were trained, and of what is no adapter."""
