"""Admin, idempotent produce, group consume, commit, watermarks; no transactions. Args: host:port."""
import sys
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

addr = sys.argv[1]
admin = AdminClient({"bootstrap.servers": addr})
for name, future in admin.create_topics([NewTopic("py", 2, 1, config={"retention.ms": "3600000"})]).items():
    future.result(20)
assert len(admin.list_topics("py", 20).topics["py"].partitions) == 2
resource = ConfigResource(ConfigResource.Type.TOPIC, "py")
configs = admin.describe_configs([resource])[resource].result(20)
assert configs["retention.ms"].value == "3600000" and configs["cleanup.policy"].value == "delete"

p = Producer({"bootstrap.servers": addr, "enable.idempotence": True, "compression.type": "zstd"})
failures = []
for i in range(1000):
    p.produce("py", b"value %d" % i, partition=i % 2, on_delivery=lambda e, m: e and failures.append(e))
assert p.flush(20) == 0 and not failures, failures

config = {"bootstrap.servers": addr, "group.id": "py", "auto.offset.reset": "earliest", "enable.auto.commit": False}
c = Consumer(config)
c.subscribe(["py"])
seen = set()
while len(seen) < 1000:
    m = c.poll(20)
    assert m is not None, "only %d records" % len(seen)
    assert not m.error(), m.error()
    seen.add(m.value())
c.commit(asynchronous=False)
assert c.get_watermark_offsets(TopicPartition("py", 1), 10) == (0, 500)
assert [t.offset for t in c.offsets_for_times([TopicPartition("py", 0, 1)], 10)] == [0]
c.close()

c = Consumer(config)
assert sorted(t.offset for t in c.committed([TopicPartition("py", 0), TopicPartition("py", 1)], 10)) == [500, 500]
c.close()
for name, future in admin.delete_topics(["py"]).items():
    future.result(20)

tx = Producer({"bootstrap.servers": addr, "transactional.id": "tx", "log_level": 0})
try:
    tx.init_transactions(20)
    raise AssertionError("transactions were accepted")
except KafkaException as e:
    reason = e.args[0]
    assert reason.fatal() and not reason.retriable(), reason
    assert "transactions are not supported" in reason.str(), reason
print("ok")
