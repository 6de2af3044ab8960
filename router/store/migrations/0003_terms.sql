-- A tenant's share of the workers, and one number that tells routers when to read the terms of service again.

ALTER TABLE tenants ADD weight double precision NOT NULL DEFAULT 1 CHECK (weight > 0 AND weight < 'infinity');  -- NaN is above infinity

CREATE TABLE terms_version (
    one_row bool PRIMARY KEY DEFAULT true CHECK (one_row),
    version bigint NOT NULL
);
INSERT INTO terms_version (version) VALUES (1);

CREATE FUNCTION raise_terms_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE terms_version SET version = version + 1;
    RETURN NULL;
END $$;

-- Before the change: transactions that change terms take this row first and each other's rows after it, so they wait and never deadlock.
CREATE TRIGGER tenants_terms BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON tenants
    FOR EACH STATEMENT EXECUTE FUNCTION raise_terms_version();
CREATE TRIGGER quotas_terms BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON quotas
    FOR EACH STATEMENT EXECUTE FUNCTION raise_terms_version();
CREATE TRIGGER prices_terms BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON prices
    FOR EACH STATEMENT EXECUTE FUNCTION raise_terms_version();
