"""What a long-lived process shows of itself over HTTP: metrics for Prometheus, and whether it lives and is ready."""
