"""``python -m sigdir`` is the command ``sigdir``."""

from sigdir.cli.main import console

if __name__ == "__main__":
    console()
