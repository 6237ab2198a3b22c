"""The project's own rows."""

from __future__ import annotations

from django.db import models


class Order(models.Model):
    """What somebody has bought."""

    sku = models.TextField()
    approved_by = models.TextField(blank=True)

    class Meta:
        """Django's."""

        app_label = "proj"

    def __str__(self) -> str:
        return str(self.sku)
