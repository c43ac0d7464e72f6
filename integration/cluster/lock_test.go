package cluster

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"

	"github.com/trivium-mq/trivium/integration/cluster/history"
)

// The lock is the exclusive consumer of a queue, and the records in that queue are its
// fencing tokens: each is a number, and to whom it was given. The holder is handed the
// first record that is not settled, publishes the next number in its own name, with a
// deduplication id that is the number, and settles the one in hand. What is handed to it
// then is that number, and if it is in its own name it is its token, else it goes on to
// the next. So a number is in the log once, and only a holder who was handed the one
// before writes it: tokens grow from holder to holder, also when a settlement was lost
// and a number comes again. Nothing but the lock keeps two from having tokens at a time.
const lockQueue = "lock"

// remembered is for how long the queues of messages with ids know these, in
// milliseconds: longer than clocks are set ahead, as that is what counts it.
var remembered = amqp.Table{"x-deduplication-window": int64(6 * time.Hour / time.Millisecond)}

// locks is what the lockers of a load have in common.
type locks struct {
	fence history.Fence // what the lock protects

	mu    sync.Mutex
	hands map[int64]string   // who was handed a record last
	stale map[int64]struct{} // records that somebody has settled who did not hold them any more
	after int                // how often that was
	again int                // how often a record came again after that, as it has to
}

func newLocks() *locks { return &locks{hands: map[int64]string{}, stale: map[int64]struct{}{}} }

// handed notes who has a record now.
func (s *locks) handed(number int64, who string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hands[number] = who
}

// elsewhere reports whether a record has been handed to somebody else after who.
func (s *locks) elsewhere(number int64, who string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hands[number] != who
}

// settled notes that a former holder has settled a record that somebody else has.
func (s *locks) settled(number int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stale[number] = struct{}{}
	s.after++
}

// wasSettled reports whether that has happened to a record.
func (s *locks) wasSettled(number int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.stale[number]
	return ok
}

func (s *locks) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("%d tokens; %d settlements of former holders, after which %d records came again", s.fence.Taken(), s.after, s.again)
}

// token reads a record of the lock's queue.
func token(body string) (history.Token, error) {
	number, owner, _ := strings.Cut(body, " ")
	n, err := strconv.ParseInt(number, 10, 64)
	return history.Token{Number: n, Owner: owner}, err
}

// tokenRecord makes one.
func tokenRecord(t history.Token) amqp.Publishing {
	return amqp.Publishing{
		DeliveryMode: amqp.Persistent, Body: fmt.Appendf(nil, "%d %s", t.Number, t.Owner),
		Headers: amqp.Table{dedupID: fmt.Sprint("token ", t.Number)},
	}
}

// checkTokens compares the tokens that were taken with the log.
func (l *load) checkTokens() {
	l.t.Helper()
	log, err := replay(l.nodes()[0], lockQueue)
	if err != nil {
		l.t.Errorf("replay %s: %v", lockQueue, err)
		return
	}
	var tokens []history.Token
	for _, body := range log {
		t, err := token(body)
		if err != nil {
			l.t.Errorf("%s: %q: %v", lockQueue, body, err)
		}
		tokens = append(tokens, t)
	}
	for _, w := range l.locks.fence.Tokens(tokens) {
		l.t.Errorf("%s: %s", lockQueue, w)
	}
	l.t.Logf("%s: %d records, %v", lockQueue, len(log), l.locks)
}

// lock asks again and again for the lock, and while it has it, asks the broker over the
// same channel for a proof of life.
func (l *load) lock(ctx context.Context, c *client) {
	for ctx.Err() == nil {
		conn, err := dialAMQP(c.node())
		if err != nil {
			pause(ctx, retry)
			continue
		}
		c.epoch++
		h := &holder{load: l, client: c, conn: conn, who: memberName(c), lived: time.Now()}
		for n := 1 + c.rng.IntN(8); n > 0 && ctx.Err() == nil && err == nil; n-- {
			err = h.once(ctx)
		}
		if errors.Is(err, errCancelled) {
			h.gone()
			h.settleLate(ctx)
		}
		conn.close()
		if err != nil { // else it has released what it had
			h.gone()
			h.write()
			pause(ctx, retry)
		}
	}
}

// holder is a locker during one connection.
type holder struct {
	load   *load
	client *client
	conn   *connection
	who    string
	lived  time.Time // when it began what it had the last answer to

	ch         *amqp.Channel
	deliveries <-chan amqp.Delivery
	cancelled  chan string
	over       bool          // it was noted that the lock is gone
	grants     int           // how often it has asked for tokens
	hand       amqp.Delivery // the record that it has
	number     int64         // of that
	token      int64         // 0: none
}

// errCancelled says that the broker has ended the consumer, as it does when another node
// serves.
var errCancelled = errors.New("the consumer was cancelled")

// gone notes, once, that the lock is lost.
func (h *holder) gone() {
	if !h.over {
		h.over = true
		h.load.objects.Gone(lockQueue, h.who, h.lived)
	}
}

// once asks for the lock, uses it and gives it back.
func (h *holder) once(ctx context.Context) (err error) {
	if h.ch, err = h.conn.conn.Channel(); err != nil {
		return err
	}
	h.cancelled = h.ch.NotifyCancel(make(chan string, 1))
	h.token, h.number = 0, -1
	denied, err := h.acquire()
	if denied {
		pause(ctx, time.Duration(20+h.client.rng.IntN(200))*time.Millisecond)
		return nil
	}
	if err == nil {
		err = h.take()
	}
	for n := h.client.rng.IntN(10); n > 0 && err == nil; n-- {
		if err = h.prove(); err == nil {
			h.write()
			pause(ctx, 50*time.Millisecond)
		}
	}
	if err == nil {
		err = h.release()
	}
	if err == nil {
		err = h.ch.Close()
		pause(ctx, time.Duration(h.client.rng.IntN(100))*time.Millisecond)
	}
	return err
}

func (h *holder) acquire() (denied bool, err error) {
	if err := errors.Join(h.ch.Qos(1, 0, false), h.ch.Confirm(false)); err != nil {
		return false, err
	}
	done, begin := h.load.objects.Begin(lockQueue, h.who, history.Acquire), time.Now()
	h.deliveries, err = h.ch.Consume(lockQueue, h.who, false, true, false, false, nil)
	switch {
	case answered(err, amqp.AccessRefused):
		done(history.Denied)
		h.lived = begin
		return true, nil
	case err != nil:
		done(history.NoAnswer)
		return false, err
	}
	done(history.Done)
	h.client.done.Add(1)
	h.lived = begin
	return false, nil
}

// take goes on from record to record until it has one of its own, and shows that to what
// the lock protects.
func (h *holder) take() error {
	h.grants++
	name := fmt.Sprintf("%s/%d", h.who, h.grants)
	got, err := h.next()
	for err == nil && got.Owner != name {
		if got, err = h.tried(got); err == nil {
			took := h.load.objects.BeginWith(lockQueue, h.who, history.Take, got.Number+1)
			err = h.advance(history.Token{Number: got.Number + 1, Owner: name})
			if err == nil {
				got, err = h.next()
			}
			if err == nil && got.Owner == name {
				h.taken(got, took)
			}
		}
	}
	return err
}

// taken shows a token that has come to what the lock protects.
func (h *holder) taken(t history.Token, took func(history.Answer)) {
	h.token = t.Number
	if h.load.locks.fence.Take(t.Number, t.Owner) {
		took(history.Done)
	} else {
		took(history.Denied)
	}
}

// next waits for the record that the broker hands to the holder.
// If none comes although the broker says, again and again, that it holds the lock, they
// have gone: somebody has settled one before there was a next.
func (h *holder) next() (t history.Token, err error) {
	for range 3 {
		late := time.NewTimer(healed / 2)
		select {
		case d, open := <-h.deliveries:
			late.Stop()
			if !open {
				return t, h.ended()
			}
			if t, err = token(string(d.Body)); err != nil {
				h.load.t.Errorf("%s: %q: %v", lockQueue, d.Body, err)
				return t, err
			}
			h.hand, h.number = d, t.Number
			h.load.locks.handed(t.Number, h.who)
			return t, nil
		case <-late.C:
		}
		if _, err := h.ch.QueueDeclarePassive(lockQueue, true, false, false, false, nil); err != nil {
			return t, err
		}
		if len(h.cancelled) > 0 {
			return t, errCancelled
		}
	}
	h.load.t.Errorf("%s: %s has the lock and is handed nothing; the last record it had was %d, settled late: %v",
		lockQueue, h.who, h.number, h.load.locks.wasSettled(h.number))
	return t, errCancelled
}

// ended says why there are no more deliveries.
func (h *holder) ended() error {
	if h.conn.conn.IsClosed() || h.ch.IsClosed() {
		return amqp.ErrClosed
	}
	return errCancelled
}

// tried waits for a moment, in which whoever held the record before may settle it, and
// gives it back: it has to come again.
func (h *holder) tried(got history.Token) (history.Token, error) {
	if h.client.rng.IntN(4) == 0 {
		return got, nil
	}
	if h.hand.Redelivered {
		pause(context.Background(), time.Duration(50+h.client.rng.IntN(300))*time.Millisecond)
	}
	late := h.load.locks.wasSettled(got.Number)
	if err := h.hand.Nack(false, true); err != nil {
		return got, err
	}
	again, err := h.next()
	if err != nil {
		return got, err
	}
	if again != got {
		h.load.t.Errorf("%s: %s has given back %+v and got %+v", lockQueue, h.who, got, again)
	}
	if late {
		h.load.locks.mu.Lock()
		h.load.locks.again++
		h.load.locks.mu.Unlock()
	}
	return again, nil
}

// advance publishes the next number, and settles the one in hand when that is there.
func (h *holder) advance(next history.Token) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	confirm, err := h.ch.PublishWithDeferredConfirm("", lockQueue, false, false, tokenRecord(next))
	if err != nil {
		return err
	}
	stored, err := confirm.WaitContext(ctx)
	switch {
	case err != nil:
		return err
	case !stored:
		return errors.Join(errors.New("not confirmed"), h.ended())
	}
	return h.hand.Ack(false)
}

// prove asks for an answer over the channel that holds.
func (h *holder) prove() error {
	proof, begin := h.load.objects.BeginWith(lockQueue, h.who, history.Prove, h.token), time.Now()
	_, err := h.ch.QueueDeclarePassive(lockQueue, true, false, false, false, nil)
	switch {
	case err != nil:
		return err
	case len(h.cancelled) > 0: // it came before the answer
		return errCancelled
	}
	proof(history.Done)
	h.lived = begin
	return nil
}

// write writes to what the lock protects, whether the lock is held or not.
func (h *holder) write() {
	if h.token == 0 {
		return
	}
	done := h.load.objects.BeginWith(lockQueue, h.who, history.Write, h.token)
	if h.load.locks.fence.Write(h.token) {
		done(history.Done)
	} else {
		done(history.Denied)
	}
}

// release gives the lock back, and the token at once or with the channel.
func (h *holder) release() error {
	release, begin := h.load.objects.Begin(lockQueue, h.who, history.Release), time.Now()
	err := h.ch.Cancel(h.who, false)
	if err != nil || h.ch.IsClosed() || len(h.cancelled) > 0 {
		release(history.NoAnswer)
		return errors.Join(err, h.ended())
	}
	release(history.Done)
	h.lived = begin
	if h.client.rng.IntN(2) == 0 {
		return h.hand.Nack(false, true)
	}
	return nil
}

// settleLate settles the record in hand once somebody else has it, over the channel that
// has held it: that must change nothing.
func (h *holder) settleLate(ctx context.Context) {
	if h.number < 0 {
		return
	}
	for until := time.Now().Add(5 * time.Second); !h.load.locks.elsewhere(h.number, h.who); pause(ctx, 5*time.Millisecond) {
		if time.Now().After(until) || ctx.Err() != nil || h.conn.conn.IsClosed() {
			return
		}
	}
	if h.hand.Ack(false) != nil {
		return
	}
	if _, err := h.ch.QueueDeclarePassive(lockQueue, true, false, false, false, nil); err == nil { // it has been seen
		h.load.locks.settled(h.number)
		h.write()
	}
}
