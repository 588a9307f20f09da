"""Functions with derivatives of their own, for `custom_vjp` and `custom_jvp`."""

from typing import Any

import numpy as np

from glasshouse.base import ShapeError, Spec, float32
from glasshouse.dispatch import broadcast_to, card, primitives, refusal, sample
from glasshouse.dispatch.call import call_of
from glasshouse.ops.body import Body
from glasshouse.ops.elementwise import tanh
from glasshouse.ops.linearise import LoopShape
from glasshouse.ops.scan import batched_body


class DerivativeRule:
    """How derivatives of a function are made: its operands are those of the card `custom`.
    Cotangents and tangents that are None are zero."""

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        """A cotangent, or None, for each operand."""
        raise NotImplementedError

    def push(self, tangents: Any, operands: Any) -> Any:
        """A tangent, or None, for each result."""
        raise NotImplementedError

    def batched(self, batched: tuple[bool, ...], outputs: tuple[bool, ...], size: int) -> Any:
        """The rule for a batch of examples; `outputs`: which results have its axis."""
        raise NotImplementedError

    def compute(self, body: Body, *operands: np.ndarray) -> list[Any]:
        """The results for arrays: the body's, unless there is a faster way to them."""
        return body.compute(operands)


def infer_custom(*operands: Spec, body: Body, rule: Any) -> Any:
    if operands != body.inputs:
        fix = "Make the body for these operands."
        raise ShapeError("custom", f"operands {list(body.inputs)}", f"{list(operands)}", fix)
    return tuple(body.out_specs())


def parts_of_custom(*_specs: Any, body: Body, rule: Any) -> Any:
    return [(call, 1, False) for call, _ in body.calls if call.name != "detach"]


def work(field: str) -> Any:
    """The sum of a cost over the calls of the body."""

    def total(*specs, **attrs) -> int:
        return sum(getattr(call.cost, field) for call, _, _ in parts_of_custom(*specs, **attrs))

    return total


def pull_custom(needs: Any, cotangents: Any, _y: Any, *operands: Any, body: Body, rule: Any) -> Any:
    pulled = rule.pull(needs, cotangents, operands)
    return tuple(g if need else None for g, need in zip(pulled, needs, strict=True))


def vjp_of(i: int) -> Any:
    """The rule for one operand alone."""

    def rule(g, y, *operands, **attrs):
        needs = tuple(k == i for k in range(len(operands)))
        return pull_custom(needs, list(g), y, *operands, **attrs)[i]

    return rule


def push_custom(tangents: Any, _y: Any, *operands: Any, body: Body, rule: Any) -> Any:
    return tuple(rule.push(tangents, operands))


def jvp_of(i: int) -> Any:
    """The rule for the tangent of one operand alone."""

    def rule(t, y, *operands, **attrs):
        tangents = [t if k == i else None for k in range(len(operands))]
        return push_custom(tangents, y, *operands, **attrs)

    return rule


def batch_custom(batched: Any, *operands: Any, body: Body, rule: Any) -> Any:
    size = next(x.shape[0] for x, b in zip(operands, batched, strict=True) if b)
    inside, has_axis = batched_body(body, LoopShape(len(operands), 0, 1), tuple(batched), size)
    inner = rule.batched(tuple(batched), has_axis, size)
    results = custom(*operands, body=inside, rule=inner)
    return tuple(
        x if b else broadcast_to(x, (size, *x.shape))
        for x, b in zip(results, has_axis, strict=True)
    )


# -- the card ----------------------------------------------------------------------------------


class SampleRule(DerivativeRule):
    """The derivative of tanh, from its result."""

    def pull(self, needs: Any, cotangents: Any, operands: Any) -> Any:
        return self.push(cotangents, operands)

    def push(self, tangents: Any, operands: Any) -> Any:
        y = tanh(operands[0])
        return [None if tangents[0] is None else tangents[0] * (1 - y * y)]

    def batched(self, batched: Any, outputs: Any, size: int) -> Any:
        return self


def sample_body() -> Body:
    x = Spec((2, 3), float32)
    return Body.of((x,), ((call_of(primitives["tanh"], (x,), {}), (0,)),), (1,))


SAMPLE: dict[str, Any] = {"body": sample_body(), "rule": SampleRule()}


@card(
    "control",
    infer=infer_custom,
    num_outputs=2,
    vjp=vjp_of,
    pullback=pull_custom,
    pushforward=push_custom,
    jvp=jvp_of,
    batch=batch_custom,
    parts=parts_of_custom,
    flops=work("flops"),
    bytes=work("bytes"),
    dtypes=(float32,),
    samples=[sample((2, 3), **SAMPLE)],
    error_samples=[refusal(ShapeError, "operands", (3, 3), **SAMPLE)],
)
def custom(*operands: Any, body: Body, rule: Any) -> Any:
    """The results of a body of calls, whose derivatives are those that `rule` gives.

    Why: a rule of the user's has to survive in loops, batches and compiled functions, where only
    calls of cards are known. Programs have the body's calls in its place."""
    return tuple(map(np.asarray, rule.compute(body, *operands)))
