-- Who may call, and what operators did.

CREATE TABLE tenants (
    id          text PRIMARY KEY CHECK (id <> ''),
    name        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    disabled_at timestamptz
);

CREATE TABLE users (
    tenant      text NOT NULL REFERENCES tenants (id),
    id          text NOT NULL CHECK (id <> ''),
    name        text NOT NULL,
    created_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (tenant, id)
);

-- The prefix is public and names the key; the digest is HMAC-SHA256 of the whole key under the server's pepper.
CREATE TABLE keys (
    prefix      text PRIMARY KEY,
    digest      bytea NOT NULL CHECK (length(digest) = 32),
    tenant      text NOT NULL REFERENCES tenants (id),
    "user"      text NOT NULL,
    name        text NOT NULL,
    roles       text[] NOT NULL,
    models      text[],                 -- NULL: every model
    created_at  timestamptz NOT NULL DEFAULT now(),
    expires_at  timestamptz,
    revoked_at  timestamptz,
    changed_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    FOREIGN KEY (tenant, "user") REFERENCES users (tenant, id)
);
CREATE INDEX keys_changed ON keys (changed_at);
CREATE INDEX keys_owner ON keys (tenant, "user");

CREATE TABLE audit_log (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at          timestamptz NOT NULL DEFAULT now(),
    actor       text NOT NULL,          -- who: user, service or key prefix, with the tenant
    action      text NOT NULL,          -- what: KEY_CREATED, QUOTA_CHANGED, ...
    tenant      text NOT NULL,          -- whose; empty: the whole installation's
    target      text NOT NULL,
    detail      jsonb NOT NULL DEFAULT '{}'
);
CREATE INDEX audit_log_tenant ON audit_log (tenant, id);

CREATE FUNCTION refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION '% is append-only', TG_TABLE_NAME USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER audit_log_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();
