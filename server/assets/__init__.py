"""Model weights: fetched by name, verified by digest, prepared once for the engine, kept outside the repository. See store.py."""
