"""Who may connect to the AMQP front end, and what they may do.

    passwords.py     the keys that SCRAM keeps of a password, and SASLprep
    permissions.py   actions, and patterns of addresses
    users.py         users and roles, with what they may do
    users_file.py    the file of users
    tls.py           certificates, which are read again when they change
    scram.py         SCRAM-SHA-256 and SCRAM-SHA-512, the server's side
    login.py         SASL of a connection, up to the name of its user
    access.py        permission checks of a connection
    usage.py         connections, sessions and links of each user
    security.py      all of it, for one server

Nothing here knows links or the store. A refusal is an `AmqpPeerError` with the condition that the client is told.
"""
