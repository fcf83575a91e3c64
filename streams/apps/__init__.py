"""The Faust app that users make, with its view of the tables and its web pages."""
