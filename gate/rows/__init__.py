"""Rows: where they stand, what their columns are, and the questions about them. The package judges nothing."""
