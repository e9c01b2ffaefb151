"""A service manager that keeps a service's descriptors and gives them to its next process, as sd_notify(3) and sd_listen_fds(3) say."""

import fcntl
import os
import signal
import socket
import sys

FIRST = 3
FREE = 200


def start(command, name, kept):
    """Starts the service. Descriptors come in another order than they went, as with systemd."""
    pid = os.fork()
    if pid:
        return pid
    moved = [(fcntl.fcntl(fd, fcntl.F_DUPFD, FREE), of) for fd, of in reversed(kept)]
    for place, (fd, _) in enumerate(moved):
        os.dup2(fd, FIRST + place)
    told = {"NOTIFY_SOCKET": "@" + name, "FDSTORE": os.environ.get("FDSTORE", "100")}
    if moved:
        told["LISTEN_FDS"] = str(len(moved))
        told["LISTEN_FDNAMES"] = ":".join(of for _, of in moved)
        told["LISTEN_PID"] = str(os.getpid())
    os.closerange(FIRST + len(moved), FREE + len(moved))
    os.execve(command[0], command, {**os.environ, **told})


def heard(manager, kept):
    """Takes one message. False where none has come."""
    try:
        text, fds, _, _ = socket.recv_fds(manager, 4096, 64)
    except TimeoutError:
        return False
    lines = dict(line.split("=", 1) for line in text.decode().split("\n") if line)
    if lines.get("FDSTORE") == "1":
        kept += [(fd, lines["FDNAME"]) for fd in fds]
    return True


def main():
    name = "steadfast-test-manager-%d" % os.getpid()
    manager = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    manager.bind("\0" + name)
    manager.settimeout(0.02)
    kept, running = [], []
    signal.signal(signal.SIGTERM, lambda *_: os.kill(running[0], signal.SIGTERM))
    while True:
        running[:] = [start(sys.argv[1:], name, kept)]
        status = None
        while status is None:
            heard(manager, kept)
            ended, how = os.waitpid(running[0], os.WNOHANG)
            status = how if ended else None
        while heard(manager, kept):
            pass
        if os.WIFEXITED(status):
            sys.exit(os.WEXITSTATUS(status))


main()
