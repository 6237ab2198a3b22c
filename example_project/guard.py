"""Run one command for as long as one other process lives, and clean up after both. Knows nothing of servers.

`python guard.py PARENT STOP GRACE FOLDER UID:GID COMMAND…`, with the pipe on stdin held by PARENT. Prints the
command's pid, then waits for it. When the pipe closes or PARENT is gone (kill -9 included) the command gets
the signal STOP and, if that does not end it, SIGKILL; if PARENT is gone, FOLDER ("" for none) is deleted as
well. UID:GID ("" for unchanged) is the account that the command runs as.
"""

import os
import select
import shutil
import signal
import subprocess
import sys
import threading
import time

POLL_SECONDS = 1.0


def start(owner: str, command: list[str]) -> "subprocess.Popen[bytes]":
    """Start `command` in a session of its own, so that Ctrl-C in a terminal reaches only the parent."""
    uid, _, gid = owner.partition(":")
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,
        stderr=sys.stderr,
        start_new_session=True,
        user=int(uid) if uid else None,
        group=int(gid) if gid else None,
        extra_groups=[] if uid else None,
    )


def wait_until_alone(parent: int) -> None:
    """Return when the parent closed the pipe or died.

    The pipe alone is not enough: children that the parent forked hold copies of its end and may outlive it.
    """
    while os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], POLL_SECONDS)
        if readable and not os.read(0, 1024):
            return


def stop_when_alone(child: "subprocess.Popen[bytes]", parent: int, stop: signal.Signals, grace: float) -> None:
    """End the child, in order if it lets us, once nobody wants it any more."""
    wait_until_alone(parent)
    child.send_signal(stop)
    time.sleep(grace)  # a daemon thread: when the child ends, the process does not wait for this
    os.killpg(child.pid, signal.SIGKILL)


def main(parent: str, stop: str, grace: str, folder: str, owner: str, *command: str) -> int:
    """Return the command's exit code as a shell reports it: 128 + the number of the signal that killed it."""
    child = start(owner, list(command))
    number = signal.Signals[stop]
    signal.signal(signal.SIGTERM, lambda *_: child.send_signal(number))
    print(child.pid, flush=True)
    threading.Thread(target=stop_when_alone, args=(child, int(parent), number, float(grace)), daemon=True).start()
    code = child.wait()
    if folder and os.getppid() != int(parent):
        shutil.rmtree(folder, ignore_errors=True)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
