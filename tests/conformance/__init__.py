"""What every SDK must do, as one table of cases, and the harness that the SDKs' runners play it against. See README.md."""
