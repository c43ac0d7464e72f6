"""Idempotent produce, then consume in a group and commit. Args: host:port count."""
import sys
from confluent_kafka import Consumer, Producer, TopicPartition

addr, count = sys.argv[1], int(sys.argv[2])
failures = []
p = Producer({"bootstrap.servers": addr, "enable.idempotence": True, "compression.type": "lz4"})
for i in range(count):
    p.produce("confluent", value=b"c-%d" % i, key=b"k%d" % (i % 3), headers=[("h", b"v"), ("h", b"w")],
              on_delivery=lambda err, _: failures.append(err) if err else None)
p.flush(20)
assert not failures, failures[:3]

settings = {"bootstrap.servers": addr, "group.id": "g1", "auto.offset.reset": "earliest", "enable.auto.commit": False}
c = Consumer(settings)
c.subscribe(["confluent"])
seen = 0
while seen < count:
    m = c.poll(20)
    assert m is not None, "nothing more after %d" % seen
    assert not m.error(), m.error()
    assert m.value() == b"c-%d" % seen and m.offset() == seen, (m.value(), m.offset())
    assert m.headers() == [("h", b"v"), ("h", b"w")], m.headers()
    seen += 1
c.commit(asynchronous=False)
c.close()
c = Consumer(settings)
assert c.committed([TopicPartition("confluent", 0)], 10)[0].offset == count
c.close()
print("ok %d" % seen)
