"""What keeps a worker of Celery 5.7 alive when Redis goes away. Knows no job.

From 5.7 on a consumer lets go of a broken connection before it closes it. Closing gives back what is not acknowledged,
for which kombu's channel asks the connection that is gone for its address: an `AttributeError`, of which nobody thinks
there, ends the worker's main process. A lost connection is what it means, and what Celery waits for.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from redis.exceptions import ConnectionError as RedisAway

REDIS = "kombu.transport.redis"
MENDED = "celery_supervise_mended"


def keep_from_ending(transport: Any) -> None:
    """Let the channels of this transport, if it is kombu's for Redis, say that a connection is gone. Idempotent."""
    channel: Any = getattr(transport, "Channel", None)
    if getattr(channel, "__module__", None) != REDIS or getattr(channel, MENDED, False):
        return
    ask = channel._connparams  # noqa: SLF001  # kombu has no other place (5.4-5.7)

    @wraps(ask)
    def asked(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.connection.client is None:
            raise RedisAway("the connection was let go")
        return ask(self, *args, **kwargs)

    channel._connparams = asked  # noqa: SLF001
    setattr(channel, MENDED, True)
