-- Whether a tenant's turns are answered by the model they ask for, or not at all.

ALTER TABLE tenants ADD no_downgrade bool NOT NULL DEFAULT false;
