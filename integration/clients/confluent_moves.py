"""An idempotent producer and a group of two, for a time: every number once and in order, and
no rebalance once all share. Args: host:port user password topic partitions seconds."""
import sys
import time
from confluent_kafka import Consumer, Producer

addr, user, password, topic = sys.argv[1:5]
partitions, seconds = int(sys.argv[5]), int(sys.argv[6])
login = {"bootstrap.servers": addr, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": password}

rebalances, errors = [], []
members = [Consumer({**login, "group.id": topic, "auto.offset.reset": "earliest", "auto.commit.interval.ms": 300, "error_cb": errors.append,
                     "session.timeout.ms": 10000, "heartbeat.interval.ms": 300}) for _ in range(2)]
note = lambda c, parts: rebalances.append(len(parts))
for c in members:
    c.subscribe([topic], on_assign=note, on_revoke=note, on_lost=note)
seen = [0] * partitions


def poll(wait):
    for c in members:
        m = c.poll(wait)
        if m is None:
            continue
        assert not m.error(), m.error()
        assert m.value() == b"%d" % m.offset() and m.offset() == seen[m.partition()], (m.partition(), m.value(), m.offset(), seen)
        seen[m.partition()] += 1


begin = time.time()
while sum(len(c.assignment()) for c in members) < partitions or not all(c.assignment() for c in members):
    poll(0.1)
    assert time.time() < begin + 30, [c.assignment() for c in members]
settled = len(rebalances)

failures, acked = [], [0] * partitions


def done(error, m):
    if error:
        failures.append(error)
    else:
        acked[m.partition()] += 1


p = Producer({**login, "enable.idempotence": True, "linger.ms": 1, "error_cb": errors.append})
begin, sent, slowest, last = time.time(), 0, 0, time.time()
while time.time() < begin + seconds:
    for n in range(partitions):
        p.produce(topic, value=b"%d" % sent, partition=n, on_delivery=done)
    sent += 1
    before = sum(acked)
    p.poll(0)
    if sum(acked) > before:
        slowest, last = max(slowest, time.time() - last), time.time()
    for _ in range(4):
        poll(0.002)
assert p.flush(30) == 0 and not failures, failures[:3]
assert acked == [sent] * partitions, (acked, sent)
until = time.time() + 30
while seen != acked:
    poll(0.01)
    assert time.time() < until, (seen, acked)
assert len(rebalances) == settled, rebalances
for c in members:
    c.close()
print("ok %d records, acknowledged at least every %.1f s; errors told of: %s" % (sent * partitions, slowest, sorted({e.name() for e in errors})))
