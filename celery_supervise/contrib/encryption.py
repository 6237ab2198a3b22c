"""A codec that encrypts, with keys that have ids and may change: extra `encryption`. Off unless a shop names it."""

from __future__ import annotations

from collections.abc import Mapping

from cryptography.fernet import Fernet, InvalidToken

from celery_supervise.errors import ConfigError
from celery_supervise.values import check_name

SETTING = "supervise_codec"


class FernetCodec:
    """Fernet (AES-128-CBC, HMAC-SHA256) for all values of jobs: ``supervise_codec = "proj.secrets.CODEC"``.

    `keys`: Fernet keys by ids of your own. The first encrypts; each decrypts what was encrypted under its id, so that a
    new key is put first, and an old one is taken out when nothing has its id any more. `reads_plain`: what was stored
    before there was a codec is read as it is; leave it out once that is gone, since nobody has signed it. Raises
    `ConfigError` for a key that is none. An encrypted value is a third longer.

    >>> codec = FernetCodec({"2026": Fernet.generate_key()})
    >>> codec.decode(*codec.encode(b"a secret"))
    b'a secret'
    """

    def __init__(self, keys: Mapping[str, str | bytes], *, reads_plain: bool = False) -> None:
        if not keys:
            raise ConfigError(SETTING, "needs a key; make one with cryptography.fernet.Fernet.generate_key()")
        self._keys = {check_name("key id", name): _fernet(name, key) for name, key in keys.items()}
        self._newest = next(iter(self._keys))
        self._reads_plain = reads_plain

    def encode(self, data: bytes) -> tuple[bytes, str | None]:
        """`data` under the first key, and that key's id."""
        return self._keys[self._newest].encrypt(data), self._newest

    def decode(self, data: bytes, key_id: str | None) -> bytes:
        """What was encrypted. Raises `LookupError` (no such key) or `ValueError` (not what the key has signed)."""
        if key_id is None:
            if self._reads_plain:
                return data
            raise ValueError("it is not encrypted; FernetCodec(…, reads_plain=True) reads what is older than the codec")
        if key_id not in self._keys:
            raise LookupError(f"there is no key {key_id!r}; keep a key for as long as values have its id")
        try:
            return self._keys[key_id].decrypt(data)
        except InvalidToken:
            raise ValueError(f"it is not as it was encrypted under key {key_id!r}, or that key has changed") from None


def _fernet(name: str, key: str | bytes) -> Fernet:
    try:
        return Fernet(key)
    except (ValueError, TypeError):
        # without what was given: it may be a key after all, with a letter too many
        raise ConfigError(SETTING, f"key {name!r} is no Fernet key: 32 bytes in URL-safe base64") from None
