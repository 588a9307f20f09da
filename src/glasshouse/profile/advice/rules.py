"""Advice: needless time and memory, where, why, and the gain of a change.

Each rule reads the evidence and returns advice with the expected gain, computed from measurements;
the largest gain comes first. A rule knows no program: counts and shares decide. Costs and gains are
per steady step: time that only the warm-up takes is no reason for advice."""

from glasshouse.profile.advice.evidence import Evidence
from glasshouse.profile.advice.finding import Advice
from glasshouse.profile.advice.host import HOST_RULES, LASTING_RULES
from glasshouse.profile.advice.kernels import KERNEL_RULES
from glasshouse.profile.advice.memory import MEMORY_RULES
from glasshouse.profile.trace import Trace

SHARE = 0.05  # of a step, from which on a gain is worth saying


def advice(trace: Trace) -> list[Advice]:
    """Return the advice that the numbers support, the largest gain first."""
    steady = Evidence(trace)
    lasting = Evidence(trace, steady.steps.lasting)
    pairs = [(rule, steady) for rule in (*HOST_RULES, *KERNEL_RULES, *MEMORY_RULES)]
    pairs += [(rule, lasting) for rule in LASTING_RULES]
    findings = [x.of_a_step(e.loop_steps) for rule, e in pairs for x in rule(e)]
    return sorted((x for x in findings if x.share >= SHARE), key=lambda x: -x.share)
