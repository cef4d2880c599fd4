"""The statistics of a version as charts with tables.

``figures`` turns the counts of ``sigdir.warehouse.sql.statistics`` into figures, which macros of ``charts.html`` draw,
``report`` makes the page of `sigdir report`, and ``background`` counts for the server's statistics page in another process.
"""
