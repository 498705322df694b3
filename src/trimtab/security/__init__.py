"""Who somebody is and what they may do: identities, credentials, and permissions that are filters.

Nothing here does input or output: files, clocks, sockets and random numbers are the business of
`trimtab.network.security`. Read `rights.py` first: what one identity may do, as a value that a broker decides by.
`permissions.py` makes it from a file of roles; `identities.py` says where an identity comes from.
"""
