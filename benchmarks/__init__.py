"""Measurements beside their yardsticks: `make bench`."""
