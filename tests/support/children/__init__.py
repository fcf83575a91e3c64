"""Programs of processes under test: `python -m tests.support.children NAME ARGUMENT...` runs the module NAME."""
