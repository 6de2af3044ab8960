"""The usage ledger: what every turn used, written once, whatever crashes. Read ledger.py first."""
