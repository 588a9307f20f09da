"""Advice: what takes time or memory without need, where, why, and what to expect of a change.

Each rule looks at the evidence and gives advice with the gain to expect, worked out of what was
measured; the largest gain stands first. A rule knows no program: counts and shares decide."""

from glasshouse.profile.advice_host import HOST_RULES
from glasshouse.profile.advice_kernels import KERNEL_RULES
from glasshouse.profile.advice_memory import MEMORY_RULES
from glasshouse.profile.evidence import Evidence
from glasshouse.profile.finding import Advice
from glasshouse.profile.trace import Trace

SHARE = 0.05  # of the time recorded, from which on a gain is worth saying


def advice(trace: Trace) -> list[Advice]:
    """What the numbers say would help, the largest gain first."""
    evidence = Evidence(trace)
    asked = (*HOST_RULES, *KERNEL_RULES, *MEMORY_RULES)
    told = [x for rule in asked for x in rule(evidence) if x.share >= SHARE]
    return sorted(told, key=lambda x: -x.share)
