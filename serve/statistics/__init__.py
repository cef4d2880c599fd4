"""The statistics of a version as charts with tables.

``figures`` turns the counts of ``sigdir.warehouse.sql.statistics`` into figures and the page of `sigdir report`; macros of
``charts.html`` draw them. ``background`` counts for the server's statistics page in another process.
"""
