"""The verification: whether a release directory is what its evidence, its policy and its data give."""
