"""The pages for people: rendered here, working without a script and better with it.

``page.py`` is what all of them share; the other modules have one kind of page each. What a page shows comes from
the view's mapped columns, as the API's answers do.
"""
