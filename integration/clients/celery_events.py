"""Celery with its event queue, its result queue and its remote control.

The event queue is declared with x-expires, x-message-ttl and auto-delete, the
reply queues with x-expires. Usage: celery_events.py AMQP-URL PREFIX
"""

import os
import subprocess
import sys
import threading
import time

from celery import Celery

url, prefix = sys.argv[1], sys.argv[2]
app = Celery("celery_events", broker=url, backend="rpc://")
app.conf.update(
    task_default_queue=prefix + ".tasks",
    task_serializer="json",
    result_expires=60,
    event_queue_prefix=prefix + ".events",
    event_exchange=prefix + ".ev",
    event_queue_expires=60,
    worker_send_task_events=True,
    task_send_sent_event=True,
    control_exchange=prefix + ".ctl",
    control_queue_expires=10,
    broker_connection_retry=False,
)


@app.task(name="add")
def add(x, y):
    return x + y


def main():
    seen, ready = {}, threading.Event()

    def note(event):
        seen.setdefault(event["type"], 0)
        seen[event["type"]] += 1
        ready.set()

    def listen():
        with app.connection() as conn:
            receiver = app.events.Receiver(conn, handlers={"*": note})
            try:
                receiver.capture(limit=None, timeout=20, wakeup=False)
            except (TimeoutError, OSError):
                pass

    threading.Thread(target=listen, daemon=True).start()
    worker = subprocess.Popen([sys.executable, os.path.abspath(__file__), url, prefix, "worker"])
    try:
        results = [add.delay(i, i) for i in range(5)]
        assert [r.get(timeout=30) for r in results] == [0, 2, 4, 6, 8]
        pong = app.control.ping(timeout=5)
        assert len(pong) == 1, pong
        end = time.monotonic() + 30
        while seen.get("task-succeeded", 0) < 5 and time.monotonic() < end:
            ready.clear()
            ready.wait(1)
        assert seen.get("task-succeeded", 0) >= 5, seen
    finally:
        worker.terminate()
        worker.wait(20)
    print("ok", flush=True)
    os._exit(0)  # the listener is still waiting


if len(sys.argv) > 3:
    app.worker_main(["worker", "--pool=solo", "--without-gossip", "--without-mingle", "-E", "--loglevel=ERROR"])
else:
    main()
