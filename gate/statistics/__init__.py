"""Pure functions of counts. They know neither a policy nor a file."""
