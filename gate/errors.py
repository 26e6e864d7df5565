"""The one error that a user can cause; it holds sentences and knows nothing else of the product."""


class GateError(Exception):
    """Bad usage, policy, scores or release directory: no judgement is possible.

    Each line reads `where: what must be true, got what; what to write instead`. The command line prints the
    lines on stderr and exits 2, so that bad input can never be mistaken for a verdict on the model.
    """

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))


def visible(text: str, allowed: str = "") -> str:
    """Text from outside with every control and direction character shown as its number."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() or char in allowed else f"\\u{ord(char):04x}" for char in text)


def plural(count: int, noun: str) -> str:
    """`1 row`, `2 rows`, `139,315 rows`: counts in sentences are never left to the reader's grammar."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
