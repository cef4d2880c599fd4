"""The pages for people. They are rendered on the server and work without scripts; a script makes them faster.

The pages stand in ``search``, ``record``, ``submit``, ``decode``, ``docs`` and ``sql``. They share ``page`` (templates,
assets, headers, caching, the API's JSON answers and errors as a browser sees them) and ``rows`` (a row and how it looks).
``serve/app.py`` has the routes. Pages read the same view as the API.
"""
