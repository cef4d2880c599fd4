"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,000 rows."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
