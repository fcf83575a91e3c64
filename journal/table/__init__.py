"""The local copy of a journal's tables: how it is opened, follows the table topic, and is mended."""
