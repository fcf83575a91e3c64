"""The Faust app that users make, its views and web pages."""
