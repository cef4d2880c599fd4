"""HTTP over the warehouse and the pipeline. Empty until the server joins."""
