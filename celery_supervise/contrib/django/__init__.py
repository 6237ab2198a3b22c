"""Django's side, an app for `INSTALLED_APPS`: databases by alias, a command, the admin, logins. No rule of its own."""
