"""The insides of torch, by topic: whatever of torch is not public stands here, and nowhere else in the worker.

Each name is a ``Door`` (``doors.py``), with the versions of torch on which it is known. What depends on a name that a
version lacks is left out, and the run says so once.
"""
