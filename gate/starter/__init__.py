"""What a repository starts from: a policy, a workflow, simulated scores; nothing here judges."""
