"""The one error that a user can cause; it holds sentences and knows nothing else of the product."""


class GateError(Exception):
    """Bad usage, policy, scores or release directory: no judgement is possible.

    Each line reads `where: what must be true, got what; what to write instead`. The command line prints the
    lines on stderr and exits 2, so that bad input can never be mistaken for a verdict on the model.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
