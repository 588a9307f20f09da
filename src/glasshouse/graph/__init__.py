"""Graphs of primitives: recording them, rewriting, checking and printing them."""
