package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/cluster/history"
)

// answered says whether an error is an answer of the broker to the channel.
func answered(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}

// name declares, deletes and looks for a few queues.
func (l *load) name(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		conn, err := dialAMQP(c.node())
		if err != nil {
			pause(ctx, retry)
			continue
		}
		c.epoch++
		for n := 20 + c.rng.IntN(100); n > 0 && ctx.Err() == nil && err == nil; n-- {
			err = l.nameOnce(c, conn)
			pause(ctx, 20*time.Millisecond)
		}
		conn.close()
		if err != nil {
			pause(ctx, retry)
		}
	}
}

func (l *load) nameOnce(c *client, conn *connection) error {
	if conn.ch.IsClosed() { // after a 404
		var err error
		if conn.ch, err = conn.conn.Channel(); err != nil {
			return err
		}
	}
	name, verb := fmt.Sprint("name-", c.rng.IntN(3)), []history.Verb{history.Declare, history.Delete, history.Look, history.Look}[c.rng.IntN(4)]
	done := l.objects.Begin(name, memberName(c), verb)
	var err error
	switch verb {
	case history.Declare:
		_, err = conn.ch.QueueDeclare(name, true, false, false, false, nil)
	case history.Delete:
		_, err = conn.ch.QueueDelete(name, false, false, false)
	default:
		_, err = conn.ch.QueueDeclarePassive(name, true, false, false, false, nil)
	}
	switch {
	case err == nil:
		done(history.Done)
		c.done.Add(1)
	case verb == history.Look && answered(err, amqp.NotFound):
		done(history.Denied)
		c.done.Add(1)
		err = nil
	default:
		done(history.NoAnswer)
	}
	return err
}
