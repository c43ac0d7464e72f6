package amqp

import (
	"context"
	"errors"
	"strings"
	"testing"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/harness"
)

// world is what a row of the table acts on: a queue and an exchange that are
// there, one that is exclusive to another connection, and names that nothing
// has.
type world struct {
	t                         *testing.T
	c                         *amqp091.Connection
	ch                        *amqp091.Channel
	queue, exchange           string
	locked, internal, missing string
}

// refusal is one thing that is refused. Texts are RabbitMQ's, but for those
// rows whose own says that ours differs, and why. $q, $x, $l, $i and $m stand
// for the names of the world.
type refusal struct {
	name string
	do   func(w *world) error
	code int
	text string // reply text without the code's name
	own  string // ours, where it differs from RabbitMQ 3.10's
	why  string
	// since4: RabbitMQ 3 closes the connection with 503 instead.
	since4 bool
}

type args = amqp091.Table

func declareWith(a args) func(w *world) error {
	return func(w *world) error {
		_, err := w.ch.QueueDeclare(w.missing, true, false, false, false, a)
		return err
	}
}

func declare(queue func(w *world) string, durable, autoDelete, exclusive bool, a args) func(w *world) error {
	return func(w *world) error {
		_, err := w.ch.QueueDeclare(queue(w), durable, autoDelete, exclusive, false, a)
		return err
	}
}

// onReplies does something to the reply queue of another channel of the connection.
func onReplies(do func(ch *amqp091.Channel, name string) error) func(w *world) error {
	return func(w *world) error {
		name, _ := replyName(w.t, channel(w.t, w.c))
		return do(w.ch, name)
	}
}

// consumingReplies consumes answers, several times.
func consumingReplies(noAck ...bool) func(w *world) error {
	return func(w *world) (err error) {
		for _, each := range noAck {
			if _, err = w.ch.Consume(replyTo, "", each, false, false, false, nil); err != nil {
				break
			}
		}
		return err
	}
}

func theQueue(w *world) string   { return w.queue }
func theMissing(w *world) string { return w.missing }
func serverNamed(*world) string  { return "" }

func publishing(exchange, key func(w *world) string, p amqp091.Publishing) func(w *world) error {
	return func(w *world) error {
		return w.ch.PublishWithContext(context.Background(), exchange(w), key(w), false, false, p)
	}
}

func consuming(queue func(w *world) string, tag string, exclusive bool, a args) func(w *world) error {
	return func(w *world) error {
		_, err := w.ch.Consume(queue(w), tag, false, exclusive, false, false, a)
		return err
	}
}

const lockedText = "cannot obtain exclusive access to locked queue '$l' in vhost '/'. It could be originally declared on another connection " +
	"or the exclusive property value does not match that of the original declaration."

var refusals = []refusal{
	// 403
	{name: "declare the default exchange", do: func(w *world) error { return w.ch.ExchangeDeclare("", "direct", true, false, false, false, nil) },
		code: 403, text: "operation not permitted on the default exchange"},
	{name: "delete the default exchange", do: func(w *world) error { return w.ch.ExchangeDelete("", false, false) },
		code: 403, text: "operation not permitted on the default exchange"},
	{name: "bind to the default exchange", do: func(w *world) error { return w.ch.QueueBind(w.queue, "k", "", false, nil) },
		code: 403, text: "operation not permitted on the default exchange"},
	{name: "unbind from the default exchange", do: func(w *world) error { return w.ch.QueueUnbind(w.queue, "k", "", nil) },
		code: 403, text: "operation not permitted on the default exchange"},
	{name: "declare a reserved exchange", do: func(w *world) error {
		return w.ch.ExchangeDeclare("amq.mine", "direct", true, false, false, false, nil)
	},
		code: 403, text: "exchange name 'amq.mine' contains reserved prefix 'amq.*'"},
	{name: "declare a reserved queue", do: declare(func(*world) string { return "amq.mine" }, true, false, false, nil),
		code: 403, text: "queue name 'amq.mine' contains reserved prefix 'amq.*'"},
	{name: "delete a reserved exchange", do: func(w *world) error { return w.ch.ExchangeDelete("amq.topic", false, false) },
		code: 403, text: "deletion of system exchange 'amq.topic' in vhost '/' not allowed"},
	{name: "publish to an internal exchange", do: publishing(func(w *world) string { return w.internal }, theQueue, amqp091.Publishing{}),
		code: 403, text: "cannot publish to internal exchange '$i' in vhost '/'"},
	{name: "consume beside an exclusive consumer", do: func(w *world) error {
		if _, err := newChannel(w.t).Consume(w.queue, "", false, true, false, false, nil); err != nil {
			return err
		}
		return consuming(theQueue, "", false, nil)(w)
	}, code: 403, text: "queue '$q' in vhost '/' in exclusive use"},
	{name: "consume exclusively beside a consumer", do: func(w *world) error {
		if _, err := newChannel(w.t).Consume(w.queue, "", false, false, false, false, nil); err != nil {
			return err
		}
		return consuming(theQueue, "", true, nil)(w)
	}, code: 403, text: "queue '$q' in vhost '/' in exclusive use"},

	// 404
	{name: "publish to a missing exchange", do: publishing(theMissing, theQueue, amqp091.Publishing{}),
		code: 404, text: "no exchange '$m' in vhost '/'"},
	{name: "look for a missing exchange", do: func(w *world) error {
		return w.ch.ExchangeDeclarePassive(w.missing, "direct", true, false, false, false, nil)
	}, code: 404, text: "no exchange '$m' in vhost '/'"},
	{name: "look for a missing queue", do: func(w *world) error {
		_, err := w.ch.QueueDeclarePassive(w.missing, true, false, false, false, nil)
		return err
	}, code: 404, text: "no queue '$m' in vhost '/'"},
	{name: "consume from a missing queue", do: consuming(theMissing, "", false, nil), code: 404, text: "no queue '$m' in vhost '/'"},
	{name: "get from a missing queue", do: func(w *world) error { _, _, err := w.ch.Get(w.missing, true); return err },
		code: 404, text: "no queue '$m' in vhost '/'"},
	{name: "purge a missing queue", do: func(w *world) error { _, err := w.ch.QueuePurge(w.missing, false); return err },
		code: 404, text: "no queue '$m' in vhost '/'"},
	{name: "bind a missing queue", do: func(w *world) error { return w.ch.QueueBind(w.missing, "k", w.exchange, false, nil) },
		code: 404, text: "no queue '$m' in vhost '/'"},
	{name: "bind to a missing exchange", do: func(w *world) error { return w.ch.QueueBind(w.queue, "k", w.missing, false, nil) },
		code: 404, text: "no exchange '$m' in vhost '/'"},
	{name: "look for a queue without name", do: func(w *world) error {
		_, err := w.ch.QueueDeclarePassive("", true, false, false, false, nil)
		return err
	}, code: 404, text: "no queue '' in vhost '/'"},
	{name: "no queue declared before", do: consuming(serverNamed, "", false, nil), code: 404, text: "no previously declared queue"},

	// 405
	{name: "declare a locked queue", do: declare(func(w *world) string { return w.locked }, false, false, true, nil), code: 405, text: lockedText},
	{name: "look at a locked queue", do: func(w *world) error {
		_, err := w.ch.QueueDeclarePassive(w.locked, false, false, true, false, nil)
		return err
	}, code: 405, text: lockedText},
	{name: "consume from a locked queue", do: consuming(func(w *world) string { return w.locked }, "", false, nil), code: 405, text: lockedText},
	{name: "get from a locked queue", do: func(w *world) error { _, _, err := w.ch.Get(w.locked, true); return err }, code: 405, text: lockedText},
	{name: "purge a locked queue", do: func(w *world) error { _, err := w.ch.QueuePurge(w.locked, false); return err }, code: 405, text: lockedText},
	{name: "bind a locked queue", do: func(w *world) error { return w.ch.QueueBind(w.locked, "k", w.exchange, false, nil) }, code: 405, text: lockedText},
	{name: "delete a locked queue", do: func(w *world) error { _, err := w.ch.QueueDelete(w.locked, false, false, false); return err }, code: 405, text: lockedText},
	{name: "declare with another exclusive flag", do: declare(theQueue, true, false, true, nil), code: 405, text: strings.ReplaceAll(lockedText, "$l", "$q")},

	// 406
	{name: "another durable flag", do: declare(theQueue, false, false, false, nil),
		code: 406, text: "inequivalent arg 'durable' for queue '$q' in vhost '/': received 'false' but current is 'true'"},
	{name: "another auto-delete flag", do: declare(theQueue, true, true, false, nil),
		code: 406, text: "inequivalent arg 'auto_delete' for queue '$q' in vhost '/': received 'true' but current is 'false'"},
	{name: "another queue type", do: declare(theQueue, true, false, false, args{"x-queue-type": "quorum"}),
		code: 406, text: "inequivalent arg 'x-queue-type' for queue '$q' in vhost '/': received the value 'quorum' of type 'longstr' but current is none",
		own: "inequivalent arg 'x-queue-type' for queue '$q' in vhost '/': received 'quorum' but current is 'classic'", why: "a queue always has a type here"},
	{name: "another exchange type", do: func(w *world) error {
		return w.ch.ExchangeDeclare(w.exchange, "fanout", true, false, false, false, nil)
	},
		code: 406, text: "inequivalent arg 'type' for exchange '$x' in vhost '/': received 'fanout' but current is 'direct'"},
	{name: "another durable flag of an exchange", do: func(w *world) error {
		return w.ch.ExchangeDeclare(w.exchange, "direct", false, false, false, false, nil)
	},
		code: 406, text: "inequivalent arg 'durable' for exchange '$x' in vhost '/': received 'false' but current is 'true'"},
	{name: "another auto-delete flag of an exchange", do: func(w *world) error { return w.ch.ExchangeDeclare(w.exchange, "direct", true, true, false, false, nil) },
		code: 406, text: "inequivalent arg 'auto_delete' for exchange '$x' in vhost '/': received 'true' but current is 'false'"},
	{name: "another internal flag", do: func(w *world) error { return w.ch.ExchangeDeclare(w.exchange, "direct", true, false, true, false, nil) },
		code: 406, text: "inequivalent arg 'internal' for exchange '$x' in vhost '/': received 'true' but current is 'false'"},
	{name: "unknown delivery tag", do: func(w *world) error { return w.ch.Ack(7, false) }, code: 406, text: "unknown delivery tag 7"},
	{name: "unknown delivery tag, multiple", do: func(w *world) error { return w.ch.Ack(7, true) }, code: 406, text: "unknown delivery tag 7"},
	{name: "reject an unknown tag", do: func(w *world) error { return w.ch.Reject(1, true) }, code: 406, text: "unknown delivery tag 1"},
	{name: "nack an unknown tag", do: func(w *world) error { return w.ch.Nack(1, false, true) }, code: 406, text: "unknown delivery tag 1"},
	{name: "ack twice", do: func(w *world) error {
		must(w.t, publishing(func(*world) string { return "" }, theQueue, amqp091.Publishing{})(w))
		d, err := w.ch.Consume(w.queue, "", false, false, false, false, nil)
		must(w.t, err)
		m := harness.Receive(w.t, d)
		must(w.t, m.Ack(false))
		return m.Ack(false)
	}, code: 406, text: "unknown delivery tag 1"},
	{name: "expiration that is no number", do: publishing(serverNamed, theQueue, amqp091.Publishing{Expiration: "soon"}), code: 406, text: "invalid expiration 'soon': no_integer"},
	{name: "negative expiration", do: publishing(serverNamed, theQueue, amqp091.Publishing{Expiration: "-1"}), code: 406, text: "invalid expiration '-1': {value_negative,-1}"},
	{name: "expiration with a fraction", do: publishing(serverNamed, theQueue, amqp091.Publishing{Expiration: "1.5"}), code: 406, text: "invalid expiration '1.5': {leftover_string,\".5\"}"},
	{name: "expiration too far away", do: publishing(serverNamed, theQueue, amqp091.Publishing{Expiration: "4294967296000"}), code: 406, text: "invalid expiration '4294967296000': {value_too_large,4294967296000}"},
	{name: "delivery mode 3", do: publishing(serverNamed, theQueue, amqp091.Publishing{DeliveryMode: 3}), code: 406, text: "invalid message: {delivery_mode_unknown,3}"},
	{name: "delivery mode 255", do: publishing(serverNamed, theQueue, amqp091.Publishing{DeliveryMode: 255}), code: 406, text: "invalid message: {delivery_mode_unknown,255}"},
	{name: "somebody else's user id", do: publishing(serverNamed, theQueue, amqp091.Publishing{UserId: "root"}),
		code: 406, text: "user_id property set to 'root' but authenticated user was 'guest'"},
	{name: "reply-to without consumer", do: publishing(serverNamed, theQueue, amqp091.Publishing{ReplyTo: "amq.rabbitmq.reply-to"}),
		code: 406, text: "fast reply consumer does not exist"},
	{name: "CC that is no list", do: publishing(serverNamed, theQueue, amqp091.Publishing{Headers: args{"CC": int32(1)}}),
		code: 406, text: "invalid message: {unacceptable_type_in_header,\"CC\",signedint}"},
	{name: "x-match that means nothing", do: func(w *world) error {
		return w.ch.QueueBind(w.queue, "", "amq.headers", false, args{"x-match": "some"})
	},
		code: 406, text: "Invalid x-match field value"},
	{name: "bind an exchange to a missing one", do: func(w *world) error { return w.ch.ExchangeBind(w.missing, "k", w.exchange, false, nil) },
		code: 404, text: "no exchange '$m' in vhost '/'"},
	{name: "bind an exchange to the default one", do: func(w *world) error { return w.ch.ExchangeBind("", "k", w.exchange, false, nil) },
		code: 403, text: "operation not permitted on the default exchange"},
	{name: "another alternate exchange", do: func(w *world) error {
		return w.ch.ExchangeDeclare(w.exchange, "direct", true, false, false, false, args{"alternate-exchange": "ae"})
	},
		code: 406, text: "inequivalent arg 'alternate-exchange' for exchange '$x' in vhost '/': received the value 'ae' of type 'longstr' but current is none"},
	{name: "queue in use", do: func(w *world) error {
		must(w.t, consuming(theQueue, "", false, nil)(w))
		_, err := w.ch.QueueDelete(w.queue, true, false, false)
		return err
	}, code: 406, text: "queue '$q' in vhost '/' in use"},
	{name: "queue not empty", do: func(w *world) error {
		must(w.t, publishing(serverNamed, theQueue, amqp091.Publishing{})(w))
		until(w.t, "a message", func() bool {
			q, err := w.ch.QueueDeclarePassive(w.queue, true, false, false, false, nil)
			return err != nil || q.Messages > 0
		})
		_, err := w.ch.QueueDelete(w.queue, false, true, false)
		return err
	}, code: 406, text: "queue '$q' in vhost '/' not empty"},
	{name: "exchange in use", do: func(w *world) error {
		must(w.t, w.ch.QueueBind(w.queue, "k", w.exchange, false, nil))
		return w.ch.ExchangeDelete(w.exchange, true, false)
	}, code: 406, text: "exchange '$x' in vhost '/' in use"},
	{name: "unknown queue type", do: declareWith(args{"x-queue-type": "odd"}), code: 406, text: "invalid arg 'x-queue-type' for queue '$m' in vhost '/': \"unsupported queue type 'odd'\""},
	{name: "quorum and not durable", do: declare(theMissing, false, false, false, args{"x-queue-type": "quorum"}),
		code: 406, text: "invalid property 'non-durable' for queue '$m' in vhost '/'"},
	{name: "quorum and exclusive", do: declare(theMissing, true, false, true, args{"x-queue-type": "quorum"}),
		code: 406, text: "invalid property 'exclusive-owner' for queue '$m' in vhost '/'"},
	{name: "quorum and auto-delete", do: declare(theMissing, true, true, false, args{"x-queue-type": "quorum"}),
		code: 406, text: "invalid property 'auto-delete' for queue '$m' in vhost '/'"},
	{name: "stream and not durable", do: declare(theMissing, false, false, false, args{"x-queue-type": "stream"}),
		code: 406, text: "invalid property 'non-durable' for queue '$m' in vhost '/'"},
	{name: "quorum without name", do: declare(serverNamed, true, false, false, args{"x-queue-type": "quorum"}),
		code: 406, text: "Cannot declare a server-named queue for type rabbit_quorum_queue"},
	{name: "stream without name", do: declare(serverNamed, true, false, false, args{"x-queue-type": "stream"}),
		code: 406, text: "Cannot declare a server-named queue for type rabbit_stream_queue"},

	// direct reply-to
	{name: "reply consumer that acknowledges", do: consumingReplies(false), code: 406, text: "reply consumer cannot acknowledge"},
	{name: "second reply consumer", do: consumingReplies(true, true), code: 406, text: "reply consumer already set"},
	{name: "second reply consumer that acknowledges", do: consumingReplies(true, false), code: 406, text: "reply consumer cannot acknowledge"},
	{name: "reply-to without consumer, and other faults", do: publishing(serverNamed, theQueue, amqp091.Publishing{
		ReplyTo: replyTo, UserId: "root", Expiration: "soon",
	}), code: 406, text: "fast reply consumer does not exist"},
	{name: "reply-to without consumer to a missing exchange", do: publishing(theMissing, theQueue, amqp091.Publishing{ReplyTo: replyTo}),
		code: 404, text: "no exchange '$m' in vhost '/'"},
	{name: "a reply queue that nobody has", do: func(w *world) error {
		_, err := w.ch.QueueDeclare(replyTo+".x", false, false, true, false, nil)
		return err
	}, code: 404, text: "no queue 'amq.rabbitmq.reply-to.x' in vhost '/'"},
	{name: "a name that begins like reply queues", do: func(w *world) error {
		_, err := w.ch.QueueDeclare(replyTo+"x", false, false, false, false, nil)
		return err
	}, code: 404, text: "no queue 'amq.rabbitmq.reply-tox' in vhost '/'"},
	{name: "get from a reply queue", do: onReplies(func(ch *amqp091.Channel, name string) error {
		_, _, err := ch.Get(name, true)
		return err
	}), code: 404, text: "no queue 'amq.rabbitmq.reply-to."},
	{name: "consume from a reply queue by name", do: onReplies(func(ch *amqp091.Channel, name string) error {
		_, err := ch.Consume(name, "", true, false, false, false, nil)
		return err
	}), code: 404, text: "no queue 'amq.rabbitmq.reply-to."},
	{name: "purge a reply queue", do: onReplies(func(ch *amqp091.Channel, name string) error {
		_, err := ch.QueuePurge(name, false)
		return err
	}), code: 404, text: "no queue 'amq.rabbitmq.reply-to."},
	{name: "bind a reply queue", do: onReplies(func(ch *amqp091.Channel, name string) error {
		return ch.QueueBind(name, "k", "amq.direct", false, nil)
	}), code: 404, text: "no queue 'amq.rabbitmq.reply-to."},
	{name: "bind a reply queue to a missing exchange", do: onReplies(func(ch *amqp091.Channel, name string) error {
		return ch.QueueBind(name, "k", "missing", false, nil)
	}), code: 404, text: "no exchange 'missing' in vhost '/'"},
	{name: "bind a reply queue to the default exchange", do: onReplies(func(ch *amqp091.Channel, name string) error {
		return ch.QueueBind(name, "k", "", false, nil)
	}), code: 403, text: "operation not permitted on the default exchange"},

	{name: "unknown exchange type", do: func(w *world) error { return w.ch.ExchangeDeclare(w.missing, "odd", true, false, false, false, nil) },
		code: 406, text: "unknown exchange type 'odd'", since4: true},

	// 530, 540
	{name: "consumer tag in use", do: func(w *world) error {
		must(w.t, consuming(theQueue, "tag", false, nil)(w))
		return consuming(theQueue, "tag", false, nil)(w)
	}, code: 530, text: "attempt to reuse consumer tag 'tag'"},
	{name: "immediate", do: func(w *world) error {
		return w.ch.PublishWithContext(context.Background(), "", w.queue, false, true, amqp091.Publishing{})
	}, code: 540, text: "immediate=true"},
	{name: "prefetch size", do: func(w *world) error { return w.ch.Qos(1, 1, false) }, code: 540, text: "prefetch_size!=0 (1)"},
	{name: "recover without requeue", do: func(w *world) error { return recoverAll(w.ch, false) }, code: 540, text: "requeue=false"},
	{name: "flow", do: func(w *world) error { return w.ch.Flow(false) }, code: 540, text: "active=false"},
}

func (w *world) fill(text string) string {
	return strings.NewReplacer("$q", w.queue, "$x", w.exchange, "$l", w.locked, "$i", w.internal, "$m", w.missing).Replace(text)
}

func newWorld(t *testing.T, other *amqp091.Channel) *world {
	t.Helper()
	w := &world{t: t, queue: name("queue"), exchange: name("exchange"), locked: name("locked"), internal: name("internal"), missing: name("missing")}
	w.c, w.ch = shared.DialAMQP(t)
	_, err := other.QueueDeclare(w.queue, true, false, false, false, nil)
	must(t, err)
	_, err = other.QueueDeclare(w.locked, false, false, true, false, nil)
	must(t, err)
	must(t, other.ExchangeDeclare(w.exchange, "direct", true, false, false, false, nil))
	must(t, other.ExchangeDeclare(w.internal, "direct", true, false, true, false, nil))
	return w
}

func TestRefusals(t *testing.T) {
	other := newChannel(t)
	for _, tc := range refusals {
		t.Run(tc.name, func(t *testing.T) {
			if external && tc.since4 {
				t.Skip("RabbitMQ 3 answers 503")
			}
			w := newWorld(t, other)
			closed := w.ch.NotifyClose(make(chan *amqp091.Error, 1))
			connClosed := w.c.NotifyClose(make(chan *amqp091.Error, 1))
			err := tc.do(w)
			e, ok := errors.AsType[*amqp091.Error](err)
			if !ok {
				if err != nil {
					t.Fatalf("the client says: %v", err)
				}
				e = harness.Receive(t, closed)
			}
			want := tc.text
			if tc.own != "" && !external {
				want = tc.own
			}
			if e == nil || e.Code != tc.code || !strings.Contains(e.Reason, " - "+w.fill(want)) {
				t.Errorf("%v\nwant %d %s", e, tc.code, w.fill(want))
			}
			hard := tc.code >= 500 || tc.code == 320
			if hard {
				harness.Receive(t, connClosed)
			} else if _, err := w.c.Channel(); err != nil {
				t.Errorf("the connection did not live on: %v", err)
			}
		})
	}
}
