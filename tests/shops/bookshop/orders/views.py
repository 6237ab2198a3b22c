from django.http import JsonResponse
from django.shortcuts import get_object_or_404
from django.views.decorators.csrf import csrf_exempt

from orders.models import Book, Order
from orders.tasks import confirm


@csrf_exempt
def create(request):
    book = get_object_or_404(Book, title=request.POST.get("title"))
    order = Order.objects.create(book=book, email=request.POST["email"], count=int(request.POST.get("count", 1)))
    confirm.delay_on_commit(order.id)
    if order.count > 100:
        raise ValueError("call us for so many")
    return JsonResponse({"id": order.id}, status=201)


def show(request, order_id):
    order = get_object_or_404(Order, id=order_id)
    return JsonResponse({"id": order.id, "state": order.state})
