import time

from celery.contrib.testing.worker import start_worker
from django.db import transaction
from django.test import TestCase, TransactionTestCase

from bookshop import celery_app
from celery_supervise import State, Supervisor
from celery_supervise.testing import rehearse
from orders import tasks
from orders.models import Book


def wait_for(condition):
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.02)


class Rehearsed(TestCase):
    def test_a_small_delivery_asks_nobody(self):
        rehearse(tasks.restock, "Dune", 10)
        self.assertEqual(Book.objects.get(title="Dune").stock, 10)

    def test_a_large_one_asks(self):
        rehearse(tasks.restock, "Emma", 2000, answers={"large": "no"})
        self.assertFalse(Book.objects.filter(title="Emma").exists())


class Answered(TransactionTestCase):
    def test_it_waits_for_an_answer(self):
        supervise = Supervisor.of(celery_app)
        result = tasks.restock.delay("Emma", 2000)
        with start_worker(celery_app, pool="solo", perform_ping_check=False, shutdown_timeout=30):
            wait_for(lambda: supervise.job(result.id).state is State.PARKED)
            (question,) = supervise.questions(job_id=result.id)
            with transaction.atomic():
                supervise.answer(question.id, "yes", actor="user:ann", using="default")
                self.assertFalse(Book.objects.filter(title="Emma").exists())
            wait_for(lambda: supervise.job(result.id).state is State.COMPLETED)
        self.assertEqual(Book.objects.get(title="Emma").stock, 2000)
