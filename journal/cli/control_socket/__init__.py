"""A running node's control socket: commands ask the node on this machine, instead of taking its place.

`paths` says where sockets are, `lines` how requests and replies look, `errors` how errors travel; `serving` is what a
node calls, `server` and `requests` are its side, `client` is the commands'.
"""
