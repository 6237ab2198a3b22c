from django.urls import path

from orders import views

urlpatterns = [
    path("orders/", views.create),
    path("orders/<int:order_id>/", views.show),
]
