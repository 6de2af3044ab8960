-- What callers may spend, what it costs, and what they have spent.

-- Empty user, key or model: the limit is that of the wider scope. NULL: no limit; zero is a limit of zero.
CREATE TABLE quotas (
    tenant                   text NOT NULL REFERENCES tenants (id),
    "user"                   text NOT NULL DEFAULT '',
    key                      text NOT NULL DEFAULT '',
    model                    text NOT NULL DEFAULT '',
    requests_per_minute      bigint CHECK (requests_per_minute >= 0),
    input_tokens_per_minute  bigint CHECK (input_tokens_per_minute >= 0),
    output_tokens_per_minute bigint CHECK (output_tokens_per_minute >= 0),
    tokens_per_day           bigint CHECK (tokens_per_day >= 0),
    concurrent_turns         bigint CHECK (concurrent_turns >= 0),
    money_per_month          numeric(20, 12) CHECK (money_per_month >= 0),
    PRIMARY KEY (tenant, "user", key, model)
);

-- Money for a million tokens. Prices are never changed: a new one begins at `valid_from`.
CREATE TABLE prices (
    model       text NOT NULL,
    valid_from  timestamptz NOT NULL,
    prompt      numeric(14, 6) NOT NULL CHECK (prompt >= 0),
    cached      numeric(14, 6) NOT NULL CHECK (cached >= 0),
    completion  numeric(14, 6) NOT NULL CHECK (completion >= 0),
    PRIMARY KEY (model, valid_from)
);

-- One row a turn. No foreign keys: an entry outlives its tenant, user, key and model.
CREATE TABLE usage_entries (
    turn              text PRIMARY KEY,
    tenant            text NOT NULL,
    "user"            text NOT NULL,
    key               text NOT NULL,
    model_asked       text NOT NULL,
    model_served      text NOT NULL,
    prompt_tokens     bigint NOT NULL CHECK (prompt_tokens >= 0),
    cached_tokens     bigint NOT NULL CHECK (cached_tokens BETWEEN 0 AND prompt_tokens),
    completion_tokens bigint NOT NULL CHECK (completion_tokens >= 0),
    finish            text NOT NULL,
    started_at        timestamptz NOT NULL,
    ended_at          timestamptz NOT NULL CHECK (ended_at >= started_at),
    router            text NOT NULL,
    priced_from       timestamptz,      -- which price of model_served; NULL: it has none
    cost              numeric(26, 12),  -- NULL: unpriced, which is not free
    written_at        timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX usage_entries_tenant ON usage_entries (tenant, ended_at);
CREATE INDEX usage_entries_ended ON usage_entries (ended_at);

CREATE TRIGGER usage_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON usage_entries
    FOR EACH STATEMENT EXECUTE FUNCTION refuse_change();

-- Sums of usage_entries by the UTC day on which turns ended, written in the statement that writes the entries.
CREATE TABLE usage_days (
    day               date NOT NULL,
    tenant            text NOT NULL,
    "user"            text NOT NULL,
    key               text NOT NULL,
    model_served      text NOT NULL,
    turns             bigint NOT NULL,
    unpriced_turns    bigint NOT NULL,
    prompt_tokens     bigint NOT NULL,
    cached_tokens     bigint NOT NULL,
    completion_tokens bigint NOT NULL,
    cost              numeric(26, 12) NOT NULL,
    PRIMARY KEY (day, tenant, "user", key, model_served)
);
