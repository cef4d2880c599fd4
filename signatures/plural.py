"""Numbers of things in sentences."""


def counted(number: int, noun: str) -> str:
    """A number with its noun: 1 row, 1,000 rows, 2 addresses."""
    ending = "" if number == 1 else "es" if noun.endswith(("s", "sh")) else "s"
    return f"{number:,} {noun}{ending}"
