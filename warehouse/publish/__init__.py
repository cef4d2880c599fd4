"""How a version is made: new rows and their ids, sightings, the one commit. ``publish`` and ``commit`` are the way in."""
