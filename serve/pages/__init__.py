"""The pages for people. They are rendered on the server and work without scripts; a script makes them faster.

One module per page: ``home``, ``search``, ``browse``, ``record``, ``submit``, ``stored``, ``decode``, ``docs``,
``statistics`` and ``status``. They share ``page`` (templates, headers, caching), ``rows`` and ``row_markup`` (a row and
how it looks) and ``assets``. ``json_page`` shows the API's JSON answers and errors to a browser. ``serve/app.py`` has the routes. Pages
read the same view as the API.
"""
