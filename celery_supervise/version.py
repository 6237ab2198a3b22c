"""The library's version, once. Read by the build, and by whatever compares it; imports nothing."""

VERSION = "0.1.0"


def ordered(version: str) -> tuple[int, ...]:
    """`version` as numbers that compare: (major, minor, patch). What follows them does not count."""
    return tuple(int(part) for part in version.split(".")[:3] if part.isdigit())
