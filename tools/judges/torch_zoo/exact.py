"""Whether a model that differs from eager is as exact as eager: what both ways of
tools/judges/torch_models.py judge by.

A model is exact if its step in float64 is eager's, and if, in float32, its tensors are no further
from that than twice as far as eager's own come to be where parameters differ in their last bits."""

from collections.abc import Iterable, Iterator

import torch

EPSILON = 1e-7  # relative, about the last bit of float32
IN_DOUBLE = 1e-6  # relative difference of steps in float64 that is allowed
DRAWS, FURTHER = 16, 2  # eager's steps with other last bits; times the furthest of them


def draws(model) -> Iterator[int]:
    """The model as it is, then with other parameters, which differ in about their last bits."""
    generator = torch.Generator().manual_seed(3)
    parameters = [(p, p.detach().clone()) for p in model.parameters()]
    try:
        for number in range(DRAWS):
            with torch.no_grad():
                for p, inputs in parameters:
                    noise = torch.randn(p.shape, generator=generator) if number else 0
                    p.copy_(inputs * (1 + EPSILON * noise))
            yield number
    finally:
        with torch.no_grad():
            for p, inputs in parameters:
                p.copy_(inputs)


def wide(x: torch.Tensor) -> torch.Tensor:
    """In float64; complex numbers as pairs."""
    return (torch.view_as_real(x.resolve_conj()) if x.is_complex() else x).double()


def is_inexact(x: torch.Tensor) -> bool:
    """Whether a tensor has numbers that are rounded, real or complex."""
    return x.is_floating_point() or x.is_complex()


def widen(model: torch.nn.Module) -> torch.nn.Module:
    """The model, its parameters and buffers in float64 and complex128."""
    return model.double()._apply(lambda x: x.to(torch.complex128) if x.is_complex() else x)


def narrow(model: torch.nn.Module) -> torch.nn.Module:
    """The model, its parameters and buffers in float32 and complex64."""
    return model.float()._apply(lambda x: x.to(torch.complex64) if x.is_complex() else x)


def widened(inputs: dict) -> dict:
    """Inputs in float64."""
    return {name: x.double() if x.is_floating_point() else x for name, x in inputs.items()}


def times_as_far(
    ours: list[torch.Tensor],
    eager: Iterable[list[torch.Tensor]],
    exact: list[torch.Tensor],
    allowed: list[float],
) -> float:
    """Of the tensors that differ from eager's by more than is allowed, the largest quotient of our
    distance from float64 and eager's, the furthest of its steps with other last bits. In some of
    these, an element that lies beside a relu's kink falls on the side where ours has it."""
    furthest = [0.0] * len(exact)
    differ: list[int] = []
    for number, result in enumerate(eager):
        if number == 0:
            pairs = zip(ours, result, allowed, strict=True)
            # what is not a number differs too
            differ = [i for i, (x, y, most) in enumerate(pairs) if not distance(x, y) <= most]
        for i in differ:
            furthest[i] = max(furthest[i], distance(result[i], exact[i]))
    quotients = [distance(ours[i], exact[i]) / max(furthest[i], 1e-30) for i in differ]
    return max((float("inf") if x != x else x for x in quotients), default=0.0)


def distance(x: torch.Tensor, y: torch.Tensor) -> float:
    """The norm of the difference, in float64."""
    return (wide(x) - wide(y)).norm().item()


def is_exact(result: dict) -> bool:
    """Whether a model that differs is as exact as eager, and its derivatives are eager's."""
    if result.get("warned") or result.get("double", 1.0) > IN_DOUBLE:
        return False
    return result["further"] <= FURTHER


def mark_of(result: dict) -> str:
    """The word that the table has for a result."""
    return "yes" if result["right"] else "exact" if is_exact(result) else "NO"


def said_of(result: dict) -> str:
    """Return the text of the table's line for a model that differs."""
    said = ""
    if "double" in result:
        said += f" {result['double']:.0e} apart in float64"
    if "further" in result:
        said += f", {result['further']:.1f} times as far from it as eager"
    return said
