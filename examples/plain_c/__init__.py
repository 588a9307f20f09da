"""A target of one's own: plain C for one thread, without oneDNN and OpenMP."""

from plain_c.target import PLAIN_C as PLAIN_C
