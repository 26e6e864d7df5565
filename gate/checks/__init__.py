"""One file for each check: its evidence as the record stores it, how it measures, how it judges, what it says."""
