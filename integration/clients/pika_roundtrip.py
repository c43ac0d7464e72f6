"""Publishes over AMQP with confirms, reads back and acks. Args: host:port count."""
import sys
import pika

host, port = sys.argv[1].split(":")
count = int(sys.argv[2])
conn = pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
ch = conn.channel()
ch.queue_declare("pika", durable=True, arguments={"x-queue-type": "quorum"})
ch.confirm_delivery()
headers = {"text": "x", "number": 7, "flag": True, "list": [1, "two"], "nested": {"a": None}}
for i in range(count):
    ch.basic_publish("", "pika", b"pika-%d" % i, mandatory=True, properties=pika.BasicProperties(
        delivery_mode=2, content_type="text/plain", correlation_id="c%d" % i, headers=headers, priority=3,
        reply_to="back", message_id="m%d" % i, timestamp=1700000000 + i, type="t", app_id="a"))
ch.basic_qos(prefetch_count=50)
seen = 0
for method, props, body in ch.consume("pika", inactivity_timeout=10):
    assert method is not None, "nothing more after %d" % seen
    assert body == b"pika-%d" % seen, (body, seen)
    assert not method.redelivered
    assert props.headers == headers, props.headers
    assert (props.delivery_mode, props.content_type, props.correlation_id) == (2, "text/plain", "c%d" % seen), props
    assert (props.priority, props.reply_to, props.message_id, props.timestamp) == (3, "back", "m%d" % seen, 1700000000 + seen), props
    assert (props.type, props.app_id, props.expiration, props.user_id) == ("t", "a", None, None), props
    ch.basic_ack(method.delivery_tag)
    seen += 1
    if seen == count:
        break
ch.cancel()
assert ch.queue_declare("pika", durable=True, passive=True).method.message_count == 0
try:
    ch.basic_publish("", "no-such-queue", b"x", mandatory=True)
    raise AssertionError("a mandatory publish to nowhere was not returned")
except pika.exceptions.UnroutableError:
    pass
conn.close()
print("ok %d" % seen)
