"""What must survive a restart, in PostgreSQL: tenants, users, key hashes, quotas, prices, usage and the audit log.

psycopg 3 with plain SQL beside the function that runs it, and a migrator of a page (migrate.py). There is one dialect and no object
mapping, so SQLAlchemy and Alembic would only put two large packages between the reader and some thirty short statements.
"""
