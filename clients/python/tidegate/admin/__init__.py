"""`tidegate admin`: tenants, users, keys, quotas, prices, usage, the audit log and the queues of a router, from the terminal.

`command.py` is the way in. `identity.py`, `terms.py` and `reports.py` hold the subcommands, each with its arguments; `router.py` is the
connection, `output.py` what is printed.
"""
