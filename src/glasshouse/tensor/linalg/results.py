"""Results of functions of linear algebra that give several tensors."""

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from glasshouse.tensor.handle import Tensor


class CholeskyExResult(NamedTuple):
    """The lower triangle; the info is 0 where it worked, else where it failed, from 1."""

    L: "Tensor"
    info: "Tensor"


class EigResult(NamedTuple):
    """Complex values, vectors as columns."""

    eigenvalues: "Tensor"
    eigenvectors: "Tensor"


class EighResult(NamedTuple):
    """Ascending values; vectors as columns."""

    eigenvalues: "Tensor"
    eigenvectors: "Tensor"


class InvExResult(NamedTuple):
    """The inverse; the info is 0 where it worked, else the position, from 1, where it failed."""

    inverse: "Tensor"
    info: "Tensor"


class LDLExResult(NamedTuple):
    """As ldl_factor, and where D has a 0, from 1."""

    LD: "Tensor"
    pivots: "Tensor"
    info: "Tensor"


class LDLResult(NamedTuple):
    """L and D in one triangle, and the rows exchanged."""

    LD: "Tensor"
    pivots: "Tensor"


class LUFactorExResult(NamedTuple):
    """As lu_factor; the info is 0 where it worked, else the position, from 1, where it failed."""

    LU: "Tensor"
    pivots: "Tensor"
    info: "Tensor"


class LUFactorResult(NamedTuple):
    """L and U in one, row swaps counted from 1."""

    LU: "Tensor"
    pivots: "Tensor"


class LUResult(NamedTuple):
    """A permutation matrix and two triangles, whose product is the input."""

    P: "Tensor"
    L: "Tensor"
    U: "Tensor"


class LstsqResult(NamedTuple):
    """The solution, and the squared residuals by column."""

    solution: "Tensor"
    residuals: "Tensor"
    rank: "Tensor"
    singular_values: "Tensor"


class QRResult(NamedTuple):
    """An orthonormal Q and an upper triangular R."""

    Q: "Tensor"
    R: "Tensor"


class SVDResult(NamedTuple):
    """Left vectors, descending values, right vectors as rows."""

    U: "Tensor"
    S: "Tensor"
    Vh: "Tensor"


class SlogdetResult(NamedTuple):
    """The determinant: sign · exp(logabsdet)."""

    sign: "Tensor"
    logabsdet: "Tensor"


class SolveExResult(NamedTuple):
    """The solution; the info is 0 where it worked, else the position, from 1, where it failed."""

    result: "Tensor"
    info: "Tensor"
