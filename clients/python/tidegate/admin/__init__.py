"""`tidegate admin`: tenants, users, keys, quotas, prices, usage, the audit log, the queues and workers of a router, from the terminal.

`command.py` is the way in. `identity.py`, `terms.py`, `reports.py` and `workers.py` hold the subcommands, each with its arguments;
`router.py` is the connection, `output.py` what is printed.
"""
