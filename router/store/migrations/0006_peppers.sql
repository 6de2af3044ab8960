-- Digests of keys under the pepper of before and under the next, while one takes the other's place.

ALTER TABLE keys
    ADD pepper      text,               -- name of the pepper of `digest`; NULL: written by a router that knew one pepper only
    ADD next_digest bytea CHECK (length(next_digest) = 32),
    ADD next_pepper text,
    ADD CHECK ((next_digest IS NULL) = (next_pepper IS NULL));
