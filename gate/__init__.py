"""Release gate for detection models."""
