"""JMS selectors: parsed once, evaluated for each message."""
