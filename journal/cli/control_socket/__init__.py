"""A running node's control socket: commands ask the node on this machine instead of taking its place.

`paths` says where sockets are, `lines` how requests and replies look, and `errors` how errors travel. A node calls
`serving`; `server` and `requests` are its side, and `client` is the commands' side.
"""
