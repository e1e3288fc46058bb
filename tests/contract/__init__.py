"""Acceptance tests: one or more for each line of the contract, named after the line."""
