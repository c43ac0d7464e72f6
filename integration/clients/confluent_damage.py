"""Reads topic "log" from its start up to an offset, over damage. Args: host:port last."""
import sys
import time
from confluent_kafka import Consumer, KafkaError

addr, last = sys.argv[1], int(sys.argv[2])
c = Consumer({"bootstrap.servers": addr, "group.id": "damage", "auto.offset.reset": "earliest", "enable.auto.commit": False})
c.subscribe(["log"])
end = time.time() + 60
offset = -1
while offset < last:
    assert time.time() < end, "stuck behind %d" % offset
    m = c.poll(1)
    if m is None:
        continue
    if m.error():
        assert m.error().code() == KafkaError.INVALID_MSG or m.error().code() == 2, m.error()
        continue
    offset = m.offset()
    print(offset)
c.close()
