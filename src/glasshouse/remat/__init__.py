"""Rematerialisation: what the backward pass computes again, so that less is kept for it."""
