"""Reports: pure functions from a record to text. They show; they never compare, count or decide."""
