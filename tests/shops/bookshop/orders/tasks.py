from celery import chain, group, shared_task
from django.core.mail import send_mail
from django.db import transaction

from orders.models import Book, Order


class SoldOut(Exception):
    """There are not enough of it."""


class PrinterDown(Exception):
    """The label printer does not answer."""


printed = []


@shared_task
def confirm(order_id):
    order = Order.objects.select_related("book").get(id=order_id)
    send_mail("Your order", f"{order}", "shop@example.org", [order.email])
    return order.email


@shared_task
def reserve(order_id):
    with transaction.atomic():
        order = Order.objects.select_for_update().get(id=order_id)
        book = Book.objects.select_for_update().get(id=order.book_id)
        if book.stock < order.count:
            raise SoldOut(book.title)
        book.stock -= order.count
        book.save()
        order.state = "reserved"
        order.save()
    return order_id


@shared_task(bind=True, max_retries=3)
def print_label(self, order_id, fails=0):
    if self.request.retries < fails:
        raise self.retry(exc=PrinterDown(order_id), countdown=0)
    printed.append(order_id)
    return order_id


@shared_task
def ship(order_id):
    Order.objects.filter(id=order_id).update(state="shipped")
    return order_id


@shared_task(ignore_result=True)
def restock(title, count):
    book, _ = Book.objects.get_or_create(title=title)
    book.stock += count
    book.save()


def fulfil(order_id):
    return chain(reserve.s(order_id), print_label.s(), ship.s())


def confirm_all(order_ids):
    return group(confirm.s(order_id) for order_id in order_ids)
