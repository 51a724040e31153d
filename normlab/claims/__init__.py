"""The claims of the documents, what decides them, and the ledger of verdicts."""
