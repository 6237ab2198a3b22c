"""The HTTP API (the extra `web`): an ASGI application, thin, on the service.

```python
from celery_supervise.web import create_app, tokens_of

api = create_app(app, authenticate=tokens_of(app))
```
"""

from __future__ import annotations

from .app import create_app, tokens_of
from .login import TokenAuthenticator, TrustedProxy, everybody, first_of, on_this_machine_only

__all__ = [
    "TokenAuthenticator",
    "TrustedProxy",
    "create_app",
    "everybody",
    "first_of",
    "on_this_machine_only",
    "tokens_of",
]
