"""What a server counts, and ``/metrics``, which shows it in Prometheus' format."""
