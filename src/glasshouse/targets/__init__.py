"""Targets: what a Program can be compiled for, each in a folder of its own."""
