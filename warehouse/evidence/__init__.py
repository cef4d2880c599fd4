"""Sightings at rest, and what they add up to. A version names its files in the manifest (``log/manifest.py``)."""
