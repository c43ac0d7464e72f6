package kafka

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

// Bounds of the answers.
const (
	// maxPending is how many requests of a connection may wait for their
	// answer; the next ones are left in the socket.
	maxPending = 16
	// flushAt is how many bytes of answers are gathered for one write.
	flushAt = 64 << 10
	// writeTimeout is how long a peer may leave an answer untaken.
	writeTimeout = time.Minute
)

// errEnded says that an answer asked for the connection to be closed.
var errEnded = errors.New("kafka: connection ended by an answer")

// writer sends a connection's answers in the order of its requests. It is used
// by one goroutine.
type writer struct {
	conn    net.Conn
	pending <-chan *reply
	out     []byte
	// answered is called after each answer.
	answered func()
}

// run sends answers until pending is closed and drained, ctx is done, or a
// write fails.
func (w *writer) run(ctx context.Context) error {
	for {
		r, err := w.next(ctx)
		if r == nil || err != nil {
			return err
		}
		if err := w.answer(ctx, r); err != nil {
			return err
		}
		w.answered()
	}
}

// next returns the next reply once it is filled in, nil after the last. What
// is gathered goes out before it waits.
func (w *writer) next(ctx context.Context) (*reply, error) {
	var r *reply
	var open bool
	select {
	case r, open = <-w.pending:
	default:
		if err := w.flush(); err != nil {
			return nil, err
		}
		select {
		case r, open = <-w.pending:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if !open {
		return nil, w.flush()
	}
	select {
	case <-r.ready:
		return r, nil
	default:
	}
	if err := w.flush(); err != nil {
		return nil, err
	}
	select {
	case <-r.ready:
		return r, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (w *writer) answer(ctx context.Context, r *reply) error {
	switch {
	case r.late != nil:
		if err := w.flush(); err != nil {
			return err
		}
		return r.late(ctx, w)
	case r.raw != nil:
		w.out = append(w.out, 0, 0, 0, 0)
		w.out = append(w.out, r.raw...)
		patchSize(w.out, len(w.out)-len(r.raw)-4, 0)
	case r.resp != nil:
		start := len(w.out)
		// ApiVersions answers never have a tag section (KIP-511).
		w.out = appendHeader(w.out, r.correlation, r.resp.IsFlexible() && r.resp.Key() != keyApiVersions)
		w.out = r.resp.AppendTo(w.out)
		patchSize(w.out, start, 0)
	}
	if r.end {
		if err := w.flush(); err != nil {
			return err
		}
		return errEnded
	}
	if len(w.out) >= flushAt {
		return w.flush()
	}
	return nil
}

// answerAfter sends an answer after a pause, which drain ends; those behind it wait, too.
func (w *writer) answerAfter(ctx context.Context, pause time.Duration, drain context.Context, r *reply) error {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-drain.Done():
	}
	return w.answer(ctx, r)
}

func (w *writer) flush() error {
	if len(w.out) == 0 {
		return nil
	}
	err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout))
	if err == nil {
		_, err = w.conn.Write(w.out)
	}
	if err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if cap(w.out) > keptFrame {
		w.out = nil
	}
	w.out = w.out[:0]
	return nil
}

// write sends bufs with one system call where the socket allows it.
func (w *writer) write(bufs net.Buffers) error {
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if _, err := bufs.WriteTo(w.conn); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}
