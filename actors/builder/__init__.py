"""The builder actor."""

from actors.builder.actor import serve_builds

__all__ = ["serve_builds"]
