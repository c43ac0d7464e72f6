"""A member of a group that goes on while its broker is killed and started again: its partitions are not
taken from it. Args: host:port topic partitions. It ends when every partition has said "end"."""
import sys
from confluent_kafka import Consumer, KafkaException

addr, topic, partitions = sys.argv[1], sys.argv[2], int(sys.argv[3])
told = []
c = Consumer({"bootstrap.servers": addr, "group.id": "confluent", "auto.offset.reset": "earliest", "enable.auto.commit": False,
              "session.timeout.ms": 45000, "heartbeat.interval.ms": 300, "reconnect.backoff.max.ms": 500})
c.subscribe([topic], on_assign=lambda _, p: told.append(("assigned", len(p))), on_revoke=lambda _, p: told.append(("revoked", len(p))),
            on_lost=lambda _, p: told.append(("lost", len(p))))
ended, seen = set(), {n: 0 for n in range(partitions)}
while len(ended) < partitions:
    m = c.poll(60)
    assert m is not None and not m.error(), (m and m.error(), seen, told)
    assert m.offset() == seen[m.partition()], (m.partition(), m.offset(), seen)
    seen[m.partition()] += 1
    if m.value() == b"end":
        ended.add(m.partition())
    for again in range(100):
        try:
            c.commit(message=m, asynchronous=False)
            break
        except KafkaException as e:
            assert e.args[0].retriable() or again < 99, e
assert told == [("assigned", partitions)], told
c.close()
print("ok", seen)
