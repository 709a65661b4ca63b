"""What can be wrong with a node's settings."""

__all__ = ["NodeConfigError"]


class NodeConfigError(ValueError):
    """A setting that is invalid, or that this machine cannot honour.

    `field` is the member of `NodeConfig` or `PoolOptions`, "" where the text is about several; `detail` is
    the text without it. Where upstream has an error for it, the text is upstream's, without the field.
    """

    def __init__(self, detail: str, field: str = "", *, upstream: bool = False) -> None:
        super().__init__(detail if upstream or not field else f"{field}: {detail}")
        self.field, self.detail = field, detail
