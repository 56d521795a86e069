"""A cable between two network interfaces that delays frames in both directions, for kernels without
netem: wire.py LEFT RIGHT MILLISECONDS. Prints `ready`, then works until it is killed.

Each frame keeps the kernel's own header (PACKET_VNET_HDR). So a frame of 64 KiB, whose segmentation
and checksum are left to a device, is passed on unchanged.
"""
import collections
import os
import select
import socket
import sys
import time

SOL_PACKET = 263  # constants of Linux, like the next five
PACKET_VNET_HDR = 15
PACKET_IGNORE_OUTGOING = 23
ETH_P_ALL = 3
SO_SNDBUFFORCE = 32
SO_RCVBUFFORCE = 33
FRAME_BYTES_MAX = 1 << 17
FRAMES_AT_ONCE = 64


def port(name):
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    for buffer in (SO_RCVBUFFORCE, SO_SNDBUFFORCE):  # so large that no frame is lost
        opened.setsockopt(socket.SOL_SOCKET, buffer, 1 << 24)
    opened.bind((name, ETH_P_ALL))
    opened.setblocking(False)
    return opened


def take(source, line, delay):
    for _ in range(FRAMES_AT_ONCE):
        try:
            line.append((time.monotonic() + delay, source.recv(FRAME_BYTES_MAX)))
        except OSError:  # no further frame has arrived, or the interface is down
            return


def give(sink, line):
    while line and line[0][0] <= time.monotonic():
        try:
            sink.send(line.popleft()[1])
        except OSError:
            pass  # as on a cable, a frame that cannot be sent is lost


def never_wait_for_a_processor():
    """Gives this process real-time priority. A cable never waits for a processor; on a busy machine
    this process would seem to be a broken cable."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    except OSError:
        os.nice(-20)


def main(left, right, delay):
    never_wait_for_a_processor()
    ports = port(left), port(right)
    lines = collections.deque(), collections.deque()  # frames from each port, with their due times
    print("ready", flush=True)
    while True:
        due = [line[0][0] for line in lines if line]
        wait = max(0.0, min(due) - time.monotonic()) if due else None
        readable, _, _ = select.select(ports, [], [], wait)
        for side in (0, 1):
            if ports[side] in readable:
                take(ports[side], lines[side], delay)
            give(ports[1 - side], lines[side])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], float(sys.argv[3]) / 1000)
