"""Whether results of ours are those of eager PyTorch, or as near to the result in float64."""

import torch

NEAR = "as near to float64"
# Units in the last place that rounding may cost: of the operands of the last operation, and of its
# result. Which of two such results is nearer to float64 is chance.
ROUNDINGS = 2


def difference(ours, theirs, exact=None, values: bool = True) -> str:
    """Describe the differences of two lists of tensors; "" if there are none. `exact`: the list in
    float64."""
    if len(ours) != len(theirs):
        return f"{len(ours)} results for {len(theirs)}"
    verdict = ""
    for i, (x, y) in enumerate(zip(ours, theirs)):
        if x.dtype != y.dtype or x.shape != y.shape:
            return f"got {x.dtype} {tuple(x.shape)} for {y.dtype} {tuple(y.shape)}"
        if not values:
            continue
        try:
            torch.testing.assert_close(x, y, equal_nan=True)
        except AssertionError as error:
            truth = exact[i] if exact is not None and len(exact) == len(theirs) else None
            if truth is None or not as_near(x, y, truth):
                return " ".join(str(error).strip().splitlines()[:4])[:150]
            verdict = NEAR
    return verdict


def as_near(x, y, truth) -> bool:
    """Whether the error of x is at most twice that of y, or ROUNDINGS units in the last place of
    the whole tensor; both have their infinities and NaNs at the same places."""
    if truth.shape != y.shape or not y.is_floating_point():
        return False
    if not torch.equal(x.isnan(), y.isnan()) or not torch.equal(x.isinf(), y.isinf()):
        return False
    if not torch.equal(x[x.isinf()], y[y.isinf()]):
        return False
    kept = x.isfinite() & truth.isfinite()
    unit = torch.finfo(y.dtype).eps
    x, y, truth = (v.double()[kept] for v in (x, y, truth))
    allowed = max(2 * (y - truth).norm(), ROUNDINGS * unit * truth.norm())
    return bool((x - truth).norm() <= allowed)
