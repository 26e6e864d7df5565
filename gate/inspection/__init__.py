"""The inspection: whether a release directory is what its own evidence and policy give; it takes no data."""
