"""The statistics of a version as charts with tables.

``figures`` turns the counts of ``sigdir.warehouse.sql.statistics`` into figures, ``charts`` lays out their charts,
``report`` makes the page of `sigdir report`, and ``background`` counts for the server's statistics page in another process.
"""
