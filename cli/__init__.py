"""Every command of ``sigdir``, its options and its progress; ``main.py`` lists them."""
