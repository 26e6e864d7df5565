"""From benign scores to the shipped calibrator. It never looks at held-out rows."""
