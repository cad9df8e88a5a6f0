"""The ledger: what was published and what it cost, in one chain of signed records a zone."""
