"""The package makes the shipped calibrator from benign scores. It never looks at held-out rows."""
