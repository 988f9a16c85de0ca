"""Rivals of GRAND for the same tables, one file a model."""
