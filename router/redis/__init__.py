"""The Redis that several routers share: how scripts run on it."""
