from unittest import mock

from celery.contrib.testing.worker import start_worker
from django.core import mail
from django.db import transaction
from django.test import TestCase, TransactionTestCase, override_settings

from bookshop import celery_app
from orders import tasks
from orders.models import Book, Order


class Eager(TestCase):
    """Everything in this process."""

    @classmethod
    def setUpTestData(cls):
        cls.book = Book.objects.create(title="Dune", stock=3)
        cls.order = Order.objects.create(book=cls.book, email="ann@example.org", count=2)

    def setUp(self):
        tasks.printed.clear()
        celery_app.conf.task_always_eager = True
        self.addCleanup(setattr, celery_app.conf, "task_always_eager", False)

    def test_confirm(self):
        self.assertEqual(tasks.confirm.delay(self.order.id).get(), "ann@example.org")
        self.assertEqual([one.to for one in mail.outbox], [["ann@example.org"]])

    def test_called_as_a_function(self):
        self.assertEqual(tasks.confirm(self.order.id), "ann@example.org")

    def test_reserve(self):
        tasks.reserve.delay(self.order.id)
        self.book.refresh_from_db()
        self.assertEqual(self.book.stock, 1)

    def test_sold_out(self):
        Order.objects.update(count=9)
        self.assertEqual(tasks.reserve.delay(self.order.id).state, "FAILURE")
        self.book.refresh_from_db()
        self.assertEqual(self.book.stock, 3)

    def test_queries(self):
        with self.assertNumQueries(1):
            tasks.ship.delay(self.order.id)

    def test_retries(self):
        self.assertEqual(tasks.print_label.delay(self.order.id, fails=2).get(), self.order.id)
        self.assertEqual(tasks.printed, [self.order.id])

    def test_fulfil(self):
        self.assertEqual(tasks.fulfil(self.order.id)().get(), self.order.id)
        self.order.refresh_from_db()
        self.assertEqual(self.order.state, "shipped")

    def test_group(self):
        other = Order.objects.create(book=self.book, email="bob@example.org")
        self.assertEqual(tasks.confirm_all([self.order.id, other.id])().get(), ["ann@example.org", "bob@example.org"])

    def test_view(self):
        with self.captureOnCommitCallbacks(execute=True):
            reply = self.client.post("/orders/", {"title": "Dune", "email": "cyd@example.org"})
        self.assertEqual(reply.status_code, 201)
        self.assertEqual([one.to for one in mail.outbox], [["cyd@example.org"]])

    def test_view_that_fails(self):
        with self.captureOnCommitCallbacks(execute=True) as calls, self.assertRaises(ValueError):
            self.client.post("/orders/", {"title": "Dune", "email": "cyd@example.org", "count": 101})
        self.assertEqual((calls, mail.outbox), ([], []))

    def test_view_whose_task_is_mocked(self):
        with mock.patch.object(tasks.confirm, "delay_on_commit") as call:
            reply = self.client.post("/orders/", {"title": "Dune", "email": "cyd@example.org"})
        call.assert_called_once_with(reply.json()["id"])


class NotCaptured(TestCase):
    """Neither eager nor with a worker: nothing is to happen."""

    def test_view(self):
        Book.objects.create(title="Dune", stock=3)
        reply = self.client.post("/orders/", {"title": "Dune", "email": "cyd@example.org"})
        self.assertEqual(reply.status_code, 201)
        self.assertEqual(mail.outbox, [])


class OnAWorker(TransactionTestCase):
    """With a worker in a thread."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.worker = start_worker(celery_app, pool="solo", perform_ping_check=False, shutdown_timeout=30)
        cls.worker.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.worker.__exit__(None, None, None)
        super().tearDownClass()

    def setUp(self):
        tasks.printed.clear()
        self.book = Book.objects.create(title="Dune", stock=3)
        self.order = Order.objects.create(book=self.book, email="ann@example.org", count=2)

    def test_confirm(self):
        self.assertEqual(tasks.confirm.delay(self.order.id).get(timeout=60), "ann@example.org")

    def test_failure(self):
        Order.objects.update(count=9)
        with self.assertRaises(tasks.SoldOut):
            tasks.reserve.delay(self.order.id).get(timeout=60)

    def test_fulfil(self):
        self.assertEqual(tasks.fulfil(self.order.id)().get(timeout=60), self.order.id)
        self.order.refresh_from_db()
        self.assertEqual(self.order.state, "shipped")

    def test_retries(self):
        self.assertEqual(tasks.print_label.delay(self.order.id, fails=2).get(timeout=60), self.order.id)
        self.assertEqual(tasks.printed, [self.order.id])

    def test_ignored_result(self):
        tasks.restock.delay("Dune", 4)
        tasks.ship.delay(self.order.id).get(timeout=60)
        self.book.refresh_from_db()
        self.assertEqual(self.book.stock, 7)

    def test_view(self):
        order_id = self.client.post("/orders/", {"title": "Dune", "email": "cyd@example.org"}).json()["id"]
        tasks.fulfil(order_id)().get(timeout=60)
        self.assertEqual(self.client.get(f"/orders/{order_id}/").json(), {"id": order_id, "state": "shipped"})
        self.assertEqual([one.to for one in mail.outbox], [["cyd@example.org"]])

    def test_rolled_back(self):
        with self.assertRaises(ValueError), transaction.atomic():
            tasks.confirm.delay_on_commit(self.order.id)
            raise ValueError
        tasks.ship.delay(self.order.id).get(timeout=60)
        self.assertEqual(mail.outbox, [])

    @override_settings(DEFAULT_FROM_EMAIL="shop@example.org")
    def test_by_name(self):
        sent = celery_app.send_task("orders.tasks.confirm", (self.order.id,))
        self.assertEqual(sent.get(timeout=60), "ann@example.org")

    def test_wsgi(self):
        from io import BytesIO

        from bookshop.wsgi import application

        form = b"title=Dune&email=dan@example.org"
        environ = {
            "REQUEST_METHOD": "POST",
            "PATH_INFO": "/orders/",
            "SERVER_NAME": "shop",
            "SERVER_PORT": "80",
            "CONTENT_TYPE": "application/x-www-form-urlencoded",
            "CONTENT_LENGTH": str(len(form)),
            "wsgi.input": BytesIO(form),
        }
        statuses = []
        b"".join(application(environ, lambda status, headers: statuses.append(status)))
        tasks.ship.delay(self.order.id).get(timeout=60)
        self.assertEqual(statuses, ["201 Created"])
        self.assertEqual([one.to for one in mail.outbox], [["dan@example.org"]])
