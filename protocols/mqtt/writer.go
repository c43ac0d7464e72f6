package mqtt

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// calmTime is how long a connection that has nothing to write keeps large
// buffers.
const calmTime = time.Second

// writeChunk is what has to go out within the write timeout.
const writeChunk = 128 << 10

// write is the writer goroutine: it swaps the outgoing buffer for an empty one
// and writes it, until the connection ends.
func (c *conn) write() {
	defer close(c.written)
	var buf []byte
	var settles []settlement
	for {
		var ok bool
		if buf, settles, ok = c.takeOut(buf, settles); !ok {
			return
		}
		begin := time.Now()
		err := c.writeAll(buf)
		c.wrote(settles, len(buf), time.Since(begin), err)
		if err != nil {
			c.end(wire.Success, "", err)
		}
		if cap(buf) > maxKeep || cap(buf) > keepBuffer && len(buf) < cap(buf)/4 {
			buf = nil // it was for a large message, or the load has gone down
		}
	}
}

// takeOut waits for something to write and exchanges it for the empty buffers
// given. ok is false at the end.
func (c *conn) takeOut(buf []byte, settles []settlement) (_ []byte, _ []settlement, ok bool) {
	s := &c.out
	for {
		s.mu.Lock()
		switch {
		case s.dead:
			s.mu.Unlock()
			return nil, nil, false
		case len(s.buf) > 0 || len(s.settles) > 0:
			s.buf, buf = buf[:0], s.buf
			s.settles, settles = settles[:0], s.settles
			s.writing, s.control = len(buf), 0
			s.mu.Unlock()
			return buf, settles, true
		case s.closed:
			s.mu.Unlock()
			return nil, nil, false
		}
		s.idle = true
		large := cap(s.buf) > keepBuffer || cap(buf) > keepBuffer
		s.mu.Unlock()
		if c.await(large) {
			buf = nil
		}
	}
}

// shrink lets a large outgoing buffer go if it is empty.
func (s *sender) shrink() {
	s.mu.Lock()
	if len(s.buf) == 0 {
		s.buf = nil
	}
	s.mu.Unlock()
}

func (c *conn) writeAll(b []byte) error {
	for len(b) > 0 {
		n := min(len(b), writeChunk)
		timeout := c.server.limits.WriteTimeout
		if c.ended.Load() {
			timeout = min(timeout, lastWrite)
		}
		if err := c.net.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
			return err
		}
		if _, err := c.net.Write(b[:n]); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// wrote does what waits for bytes to have left: settle deliveries that need no
// acknowledgement, grant credit, let publishers go on.
func (c *conn) wrote(settles []settlement, n int, took time.Duration, err error) {
	s := &c.out
	s.mu.Lock()
	s.writing = 0
	s.wrotePromptly(n, took)
	s.account()
	s.roomLocked()
	s.mu.Unlock()
	if err != nil {
		return
	}
	for i := range settles {
		r := &settles[i]
		r.feed.member.Settle(kernel.Accept, r.partition, r.first, r.last)
	}
	c.replenish()
}

// grantRun is how many grants are taken under one lock.
const grantRun = 16

// replenish sends parked deliveries and grants credit, as far as the window
// and the backlog allow. Called by the reader after acknowledgements, by the
// writer after a write.
func (c *conn) replenish() {
	s := &c.out
	s.mu.Lock()
	resume := len(s.win.due) > 0
	s.reopen()
	s.unlock()
	if resume {
		c.resend()
	}
	for {
		var grants [grantRun]grant
		n := 0
		s.mu.Lock()
		if s.win.parkedHead < len(s.win.parked) {
			s.unparkLocked(kernel.Millis())
			s.roomLocked()
		}
		for n < grantRun && !s.closed && s.backlog() < s.bound(lowMark) {
			f, credit := s.win.grant()
			if f == nil {
				break
			}
			grants[n] = grant{f.member, credit}
			n++
		}
		s.unlock()
		for _, g := range grants[:n] {
			g.to.Credit(g.n)
		}
		if n < grantRun {
			c.streamOn()
			return
		}
	}
}
