"""Idempotent producers with small batches, many of them under way, for a time: none gives up,
and every number is in the log once and in order.
Args: host:port,... user password topic... partitions seconds."""
import sys
import time
from confluent_kafka import Consumer, Producer, TopicPartition

addr, user, password = sys.argv[1:4]
topics, partitions, seconds = sys.argv[4:-2], int(sys.argv[-2]), int(sys.argv[-1])
login = {"bootstrap.servers": addr, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": password}

fatal, failures, acked = [], [], [0]


def heard(error):
    if error.fatal():
        fatal.append(error.str())


def done(error, m):
    if error:
        failures.append(error.str())
    else:
        acked[0] += 1


producers = {t: Producer({**login, "enable.idempotence": True, "linger.ms": 5, "log_level": 0, "error_cb": heard}) for t in topics}
begin, sent = time.time(), 0
while time.time() < begin + seconds and not fatal:
    for t, p in producers.items():
        for n in range(partitions):
            p.produce(t, value=b"%d" % sent, partition=n, on_delivery=done)
        p.poll(0)
    sent += 1
    time.sleep(0.01)
assert not fatal, fatal
for t, p in producers.items():
    assert p.flush(60) == 0, t
assert not fatal and not failures, (fatal, failures[:3])
assert acked[0] == sent * partitions * len(topics), (acked, sent)
c = Consumer({**login, "group.id": "check", "enable.auto.commit": False})
c.assign([TopicPartition(t, n, 0) for t in topics for n in range(partitions)])
seen, until = {}, time.time() + 60
while len(seen) < partitions * len(topics) or min(seen.values()) < sent:
    assert time.time() < until, seen
    for m in c.consume(5000, 0.5):
        assert not m.error(), m.error()
        at = (m.topic(), m.partition())
        assert m.value() == b"%d" % m.offset() and m.offset() == seen.get(at, 0), (at, m.value(), m.offset(), seen.get(at))
        seen[at] = m.offset() + 1
assert max(seen.values()) == sent, (seen, sent)
c.close()
print("ok %d records" % acked[0])
