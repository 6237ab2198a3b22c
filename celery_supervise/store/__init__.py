"""The only SQL that changes a job: one statement, or one short transaction, an operation.

``sql`` has the common form, ``door`` runs statements, the others hold them by who asks: ``births``, ``holder``
(the attempt that runs the job), ``people``, ``leases``, ``time``, ``publishing``.
"""
