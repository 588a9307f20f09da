"""Advice from a recording: what costs time or memory, and what to change.

A trace goes in, and pieces of `Advice` come out. Read `rules.py`, which asks every rule;
`evidence.py`, the rules' view of the steady steps; `host.py`, `kernels.py` and `memory.py`, the
rules by subject; `finding.py`, one piece of advice as text."""

from glasshouse.profile.advice.rules import advice
