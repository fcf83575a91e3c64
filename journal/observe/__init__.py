"""Pages about a long-lived process, over HTTP: metrics for Prometheus, and whether it lives and is ready."""
