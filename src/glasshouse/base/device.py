"""The name of a device, which PyTorch's programs take apart."""

__all__ = ["device"]

DEVICES: "dict[str, device]" = {}  # each name once, so that captured code knows it again


class device(str):
    """The name of a device: a string, with PyTorch's `type` and `index`. The device may not exist:
    making a tensor on it raises then.

    Example:
        >>> device("cuda", 1), device("cuda:1").type, device("cpu").index, device("cpu") == "cpu"
        (device('cuda:1'), 'cuda', None, True)
    """

    __slots__ = ()

    def __new__(cls, type: str, index: int | None = None) -> "device":
        name = type if index is None else f"{type}:{index}"
        if name not in DEVICES:
            DEVICES[name] = super().__new__(cls, name)
        return DEVICES[name]

    @property
    def type(self) -> str:
        """The kind of device: "cpu", "cuda" …"""
        return self.partition(":")[0]

    @property
    def index(self) -> int | None:  # type: ignore[override]
        """Its number among those of its kind, if the name says one."""
        number = self.partition(":")[2]
        return int(number) if number else None

    def __repr__(self) -> str:
        return f"device({str(self)!r})"
