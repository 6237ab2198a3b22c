"""The HTTP API (the extra `web`): an ASGI application, thin, on the service.

```python
from celery_supervise.web import TokenAuthenticator, Tokens, create_app

api = create_app(app, authenticate=TokenAuthenticator(Tokens.of(app)))
```
"""

from __future__ import annotations

from .app import create_app
from .login import TokenAuthenticator, TrustedProxy, everybody, first_of

__all__ = ["TokenAuthenticator", "TrustedProxy", "create_app", "everybody", "first_of"]
