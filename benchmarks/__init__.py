"""Measurements, each compared with a reference: `make bench`."""
