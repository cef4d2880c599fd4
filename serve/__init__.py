"""The HTTP layer: the APIs, the pages for people, the servers."""
