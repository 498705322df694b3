"""The proxy that tests put between two ends of a link."""

from trimtab.lab.bench.nemesis.proxy import LinkProxy

__all__ = ["LinkProxy"]
