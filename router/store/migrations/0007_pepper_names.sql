-- Names of the peppers that routers of this database hash keys with: one, and two while it is changed.

CREATE TABLE peppers (name text PRIMARY KEY);
