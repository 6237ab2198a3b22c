from django.db import models


class Book(models.Model):
    title = models.CharField(max_length=200)
    stock = models.PositiveIntegerField(default=0)

    def __str__(self):
        return self.title


class Order(models.Model):
    book = models.ForeignKey(Book, on_delete=models.PROTECT)
    email = models.EmailField()
    count = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=20, default="new")

    def __str__(self):
        return f"{self.count} × {self.book}"
