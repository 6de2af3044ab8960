-- Workers that get no new turns, by address. Routers follow them with the terms of service.

CREATE TABLE drained_workers (
    address text PRIMARY KEY CHECK (address <> '')
);

CREATE TRIGGER drained_workers_terms BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON drained_workers
    FOR EACH STATEMENT EXECUTE FUNCTION raise_terms_version();
