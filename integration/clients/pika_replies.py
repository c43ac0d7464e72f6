"""Asks and answers over AMQP by direct reply-to. Args: host:port count."""
import sys
import pika

host, port = sys.argv[1].split(":")
count = int(sys.argv[2])
connect = lambda: pika.BlockingConnection(pika.ConnectionParameters(host, int(port)))
asks, answers = connect(), connect()
ch, server = asks.channel(), answers.channel()
server.queue_declare("pika-calls", exclusive=True)
got = []
ch.basic_consume("amq.rabbitmq.reply-to", lambda ch, m, p, body: got.append((p.correlation_id, body)), auto_ack=True)
names = set()
for i in range(count):
    ch.basic_publish("", "pika-calls", b"%d" % i, pika.BasicProperties(reply_to="amq.rabbitmq.reply-to", correlation_id="c%d" % i))
seen = 0
for method, props, body in server.consume("pika-calls", auto_ack=True, inactivity_timeout=10):
    assert method is not None, "no more requests after %d" % seen
    names.add(props.reply_to)
    server.basic_publish("", props.reply_to, b"answer " + body, pika.BasicProperties(correlation_id=props.correlation_id))
    seen += 1
    if seen == count:
        break
assert len(names) == 1, names
while len(got) < count:
    before = len(got)
    asks.process_data_events(10)
    assert len(got) > before, "no more answers after %d" % before
assert got == [("c%d" % i, b"answer %d" % i) for i in range(count)], got
try:
    answers.channel().basic_consume("amq.rabbitmq.reply-to", print, auto_ack=False)
    raise AssertionError("a reply consumer that acknowledges was accepted")
except pika.exceptions.ChannelClosedByBroker as e:
    assert e.reply_code == 406, e
asks.close()
answers.close()
print("ok %d" % len(got))
