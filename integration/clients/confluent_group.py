"""Idempotent produce, consume as a group to the end of all partitions, commit, read what is
committed. Args: host:port user password topic partitions count."""
import sys
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

addr, user, password, topic = sys.argv[1:5]
partitions, count = int(sys.argv[5]), int(sys.argv[6])
login = {"bootstrap.servers": addr, "security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN", "sasl.username": user, "sasl.password": password}

failures = []
p = Producer({**login, "enable.idempotence": True, "linger.ms": 1})
for i in range(count * partitions):
    p.produce(topic, value=b"%d" % (i // partitions), partition=i % partitions, on_delivery=lambda e, _: failures.append(e) if e else None)
assert p.flush(30) == 0 and not failures, failures[:3]

members = [Consumer({**login, "group.id": topic, "auto.offset.reset": "earliest", "enable.auto.commit": False, "enable.partition.eof": True,
                     "session.timeout.ms": 10000, "heartbeat.interval.ms": 300}) for _ in range(2)]
for c in members:
    c.subscribe([topic])
seen, ends, idle = {n: 0 for n in range(partitions)}, set(), 0
while len(ends) < partitions or not all(c.assignment() for c in members):
    for c in members:
        m = c.poll(0.1)
        idle = idle + 1 if m is None else 0
        assert idle < 300, (seen, ends, [c.assignment() for c in members])
        if m is None:
            continue
        if m.error():
            assert m.error().code() == KafkaError._PARTITION_EOF, m.error()
            ends.add(m.partition())
            assert m.offset() == count, (m.partition(), m.offset())
            continue
        # A rebalance before the first commit has a partition begin again.
        assert m.value() == b"%d" % m.offset() and m.offset() in (0, seen[m.partition()]), (m.partition(), m.value(), m.offset(), seen)
        seen[m.partition()] = m.offset() + 1
assert all(n == count for n in seen.values()), seen
everything = [TopicPartition(topic, n) for n in range(partitions)]
for c in members:
    mine = [TopicPartition(topic, t.partition, count) for t in c.assignment()]
    assert all(t.error is None for t in c.commit(offsets=mine, asynchronous=False)), mine
    assert all(c.get_watermark_offsets(t, 10) == (0, count) for t in mine)
for c in members:
    assert [t.offset for t in c.committed(everything, 10)] == [count] * partitions
for c in members:
    c.close()
print("ok")
