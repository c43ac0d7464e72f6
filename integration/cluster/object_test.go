package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/cluster/history"
)

// lock asks again and again for the exclusive consumer of a queue, and while it has
// it, asks the broker over the same channel for a proof of life.
func (l *load) lock(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		conn, err := dialAMQP(c.node())
		if err != nil {
			pause(ctx, retry)
			continue
		}
		c.epoch++
		who, lived := memberName(c), time.Now()
		for n := 1 + c.rng.IntN(8); n > 0 && ctx.Err() == nil; n-- {
			if lived, err = l.lockOnce(ctx, c, conn, who, lived); err != nil {
				break
			}
		}
		conn.close()
		if err != nil { // else it has released what it had
			l.objects.Gone("lock", who, lived)
			pause(ctx, retry)
		}
	}
}

// answered says whether an error is an answer of the broker to the channel.
func answered(err error, code int) bool {
	e, ok := errors.AsType[*amqp.Error](err)
	return ok && e.Server && e.Code == code
}

// errCancelled says that the broker has ended the consumer, as it does when another node
// serves.
var errCancelled = errors.New("the consumer was cancelled")

func (l *load) lockOnce(ctx context.Context, c *client, conn *connection, who string, lived time.Time) (time.Time, error) {
	ch, err := conn.conn.Channel()
	if err != nil {
		return lived, err
	}
	defer ch.Close()
	closed, cancelled := ch.NotifyClose(make(chan *amqp.Error, 1)), ch.NotifyCancel(make(chan string, 1))
	done := l.objects.Begin("lock", who, history.Acquire)
	begin := time.Now()
	_, err = ch.Consume("lock", who, true, true, false, false, nil)
	if answered(err, amqp.AccessRefused) {
		done(history.Denied)
		pause(ctx, time.Duration(20+c.rng.IntN(200))*time.Millisecond)
		return begin, nil
	}
	if err != nil {
		done(history.NoAnswer)
		return lived, err
	}
	done(history.Done)
	c.done.Add(1)
	lived = begin
	for n := c.rng.IntN(10); n > 0; n-- {
		proof := l.objects.Begin("lock", who, history.Prove)
		begin := time.Now()
		if _, err := ch.QueueDeclarePassive("lock", true, false, false, false, nil); err != nil {
			proof(history.NoAnswer)
			return lived, err
		}
		if len(cancelled) > 0 { // it came before the answer
			proof(history.NoAnswer)
			return lived, errCancelled
		}
		proof(history.Done)
		lived = begin
		pause(ctx, 50*time.Millisecond)
	}
	release := l.objects.Begin("lock", who, history.Release)
	begin = time.Now()
	if err := ch.Cancel(who, false); err != nil || len(closed) > 0 || len(cancelled) > 0 {
		release(history.NoAnswer)
		return lived, errors.Join(err, amqp.ErrClosed)
	}
	release(history.Done)
	pause(ctx, time.Duration(c.rng.IntN(100))*time.Millisecond)
	return begin, nil
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
