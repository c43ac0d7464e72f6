package crash

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/integration/harness"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// link is a connection that speaks packets.
type link struct {
	c       net.Conn
	rd      *wire.Reader
	version byte
	present bool
}

// dialOnce connects a session that is kept, or fails.
func dialOnce(at harness.Addresses, version byte, id string, receiveMaximum uint16) (*link, error) {
	c, err := net.DialTimeout("tcp", at.MQTT, time.Second)
	if err != nil {
		return nil, err
	}
	l := &link{c: c, rd: wire.NewReader(c, 1<<20), version: version}
	req := wire.ConnectRequest{Version: version, ClientID: id, SessionExpiry: 600, ReceiveMaximum: receiveMaximum}
	if _, err := c.Write(req.Append(nil)); err != nil {
		_ = c.Close()
		return nil, err
	}
	first, body, err := l.next()
	if err == nil && first>>4 != wire.Connack {
		err = fmt.Errorf("packet %d instead of CONNACK", first>>4)
	}
	var a *wire.ConnectAnswer
	if err == nil {
		a, err = wire.ParseConnack(version, body)
	}
	if err == nil && a.Code != wire.Success {
		err = fmt.Errorf("CONNACK 0x%02x", a.Code)
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	l.present = a.SessionPresent
	return l, nil
}

func (l *link) next() (first byte, body []byte, err error) {
	for {
		first, body, ok, err := l.rd.Take()
		if err == nil && ok && first>>4 == wire.Disconnect {
			err = farewell(body)
		}
		if err != nil || ok {
			return first, body, err
		}
		if err := l.c.SetReadDeadline(time.Now().Add(time.Minute)); err != nil { // a group may wait for a slower session
			return 0, nil, err
		}
		if _, err := l.rd.Fill(); err != nil {
			return 0, nil, err
		}
	}
}

// farewell is what a DISCONNECT means: a node that stops or leads no more says so, and that
// a session was taken over by its own next connection.
func farewell(body []byte) error {
	if len(body) > 0 {
		switch wire.Code(body[0]) {
		case wire.ServerShuttingDown, wire.SessionTakenOver, wire.ServerUnavailable, wire.UnspecifiedError: // the last two: an outcome that is not known
			return errGone
		}
	}
	return fmt.Errorf("DISCONNECT % x", body)
}

// endpoint is what both kinds of client have: a process that may lose its connection
// at any time, and a state that it does not lose.
type endpoint struct {
	t       testing.TB
	at      func() harness.Addresses // of a node, perhaps another one each time
	id      string
	version byte

	mu      sync.Mutex
	now     *link
	met     bool // connected once
	lost    int  // sessions that were not there any more
	reached chan struct{}
}

// cut closes the connection without a word.
func (e *endpoint) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.now != nil {
		_ = e.now.c.Close()
	}
}

// run connects again and again, and lets serve work on each connection.
func (e *endpoint) run(ctx context.Context, receiveMaximum uint16, serve func(*link) error) {
	for ctx.Err() == nil {
		l, err := dialOnce(e.at(), e.version, e.id, receiveMaximum)
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		e.mu.Lock()
		e.now = l
		if e.met && !l.present {
			e.lost++
		}
		e.met = true
		e.mu.Unlock()
		stop := context.AfterFunc(ctx, func() { _ = l.c.Close() })
		if err := serve(l); err != nil && !expected(err) {
			e.t.Errorf("%s: %v", e.id, err)
		}
		stop()
		_ = l.c.Close()
	}
}

var errGone = errors.New("gone before an acknowledgement")

// expected says that a connection ended as they do here.
func expected(err error) bool {
	for _, e := range []error{errGone, io.EOF, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// sender publishes numbers with QoS 2. What it keeps is what the standard has a
// client keep.
type sender struct {
	endpoint
	next    int
	enough  atomic.Bool // begin nothing more
	flights []flight    // oldest first
	last    uint16
	done    chan struct{} // closed when all is published
	once    sync.Once
	arrived func() int // how many have come to the slowest receiver
}

// ahead is how many messages the sender may be ahead of the slowest receiver, which the
// test waits for in the end.
const ahead = 3000

type flight struct {
	id       uint16
	number   int
	released bool
}

func (s *sender) packet(f flight, dup bool) []byte {
	fr := wire.Frame{Version: s.version, QoS: 2, ID: f.id, Dup: dup, Topic: fmt.Appendf(nil, "once/%d", f.number%7), Payload: fmt.Appendf(nil, "%d", f.number)}
	b, _, _ := fr.Append(nil)
	return b
}

func (s *sender) serve(l *link) error {
	for _, f := range s.flights {
		b := s.packet(f, true)
		if f.released {
			b = wire.AppendAck(nil, wire.Pubrel, s.version, f.id, wire.Success)
		}
		if _, err := l.c.Write(b); err != nil {
			return err
		}
	}
	for {
		for len(s.flights) < 30 && !s.enough.Load() && (s.next < ahead || s.next-ahead < s.arrived()) {
			if s.last++; s.last > 100 { // identifiers come around all the time
				s.last = 1
			}
			if slices.ContainsFunc(s.flights, func(f flight) bool { return f.id == s.last }) {
				continue
			}
			f := flight{id: s.last, number: s.next}
			s.next++
			s.flights = append(s.flights, f)
			if _, err := l.c.Write(s.packet(f, false)); err != nil {
				return err
			}
		}
		if len(s.flights) == 0 && s.enough.Load() {
			s.once.Do(func() { close(s.done) })
			return nil
		}
		if len(s.flights) == 0 {
			pause(s.t.Context(), time.Millisecond)
			continue
		}
		first, body, err := l.next()
		if err != nil {
			return err
		}
		if err := s.answer(l, first>>4, body); err != nil {
			return err
		}
	}
}

func (s *sender) answer(l *link, pt byte, body []byte) error {
	if pt != wire.Pubrec && pt != wire.Pubcomp {
		return fmt.Errorf("packet %d", pt)
	}
	id, code, err := wire.ParseAck(pt, s.version, body)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(s.flights, func(f flight) bool { return f.id == id })
	switch {
	case i < 0:
		return fmt.Errorf("acknowledgement of %d, which is not under way", id)
	case pt == wire.Pubcomp:
		s.flights = slices.Delete(s.flights, i, i+1)
		return nil
	case code >= wire.UnspecifiedError:
		return fmt.Errorf("PUBREC 0x%02x", code)
	}
	s.flights[i].released = true
	_, err = l.c.Write(wire.AppendAck(nil, wire.Pubrel, s.version, id, wire.Success))
	return err
}

// receiver subscribes with QoS 2 and notes every message that is new to it.
type receiver struct {
	endpoint
	filter  string
	got     func(payload string)
	pending map[uint16]bool // received, not released
	rng     *rand.Rand
}

func (r *receiver) serve(l *link) error {
	if !l.present {
		clear(r.pending)
		sub := wire.SubscribeRequest{ID: 1, Filters: []wire.Filter{{Name: r.filter, QoS: 2}}}
		if _, err := l.c.Write(sub.Append(nil, r.version)); err != nil {
			return err
		}
	}
	for {
		first, body, err := l.next()
		if err != nil {
			return err
		}
		var out []byte
		switch first >> 4 {
		case wire.Suback:
			select {
			case r.reached <- struct{}{}:
			default:
			}
			continue
		case wire.Publish:
			var m wire.Message
			if err := m.Parse(r.version, first, body); err != nil {
				return err
			}
			if m.QoS != 2 {
				return fmt.Errorf("QoS %d", m.QoS)
			}
			if !r.pending[m.ID] {
				r.pending[m.ID] = true
				r.got(string(m.Payload))
			}
			out = wire.AppendAck(nil, wire.Pubrec, r.version, m.ID, wire.Success)
		case wire.Pubrel:
			id, _, err := wire.ParseAck(wire.Pubrel, r.version, body)
			if err != nil {
				return err
			}
			delete(r.pending, id)
			out = wire.AppendAck(nil, wire.Pubcomp, r.version, id, wire.Success)
		default:
			return fmt.Errorf("packet %d % x", first>>4, body)
		}
		if r.rng.IntN(400) == 0 {
			return errGone
		}
		if _, err := l.c.Write(out); err != nil {
			return err
		}
	}
}

// tally counts messages.
type tally struct {
	mu    sync.Mutex
	count map[string]int
	twice []string
}

func (c *tally) add(payload string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.count[payload]++; c.count[payload] == 2 {
		c.twice = append(c.twice, payload)
	}
}

func (c *tally) len() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.count)
}

// TestExactlyOnce: MQTT QoS 2 through twenty kills of either side, on all legs: a
// private subscription of a durable session and a group of two sessions. Every
// message arrives at each of them once, none is lost, none comes twice.
func TestExactlyOnce(t *testing.T) {
	b := harness.Start(t)
	exactlyOnce(t, func() harness.Addresses { return b.Addresses }, func() {
		b.Kill()
		b.Run()
	})
}

// TestExactlyOnceOnThreeNodes: the same on a cluster whose leader is killed. Clients
// come back to any node.
func TestExactlyOnceOnThreeNodes(t *testing.T) {
	c := harness.StartCluster(t, harness.ClusterConfig{Nodes: 3, Guest: true})
	harness.Must(t, c.Whole(30*time.Second))
	exactlyOnce(t, func() harness.Addresses { return c.Nodes[rand.IntN(3)].Addresses }, func() {
		n, err := c.Leader(30 * time.Second)
		harness.Must(t, err)
		n.Kill()
		_, err = c.NextLeader(n, 30*time.Second)
		harness.Must(t, err)
		harness.Must(t, n.Run())
		harness.Must(t, c.Whole(30*time.Second))
	})
}

func exactlyOnce(t *testing.T, at func() harness.Addresses, kill func()) {
	s := seed()
	t.Logf("seed %d (TRIVIUM_SEED)", s)
	rng := rand.New(rand.NewPCG(s, 2))
	private, group := &tally{count: map[string]int{}}, &tally{count: map[string]int{}}
	point := func(id string, version byte) endpoint {
		return endpoint{t: t, at: at, id: id, version: version, reached: make(chan struct{}, 1)}
	}
	from := &sender{
		endpoint: point("from", wire.V5), done: make(chan struct{}),
		arrived: func() int { return min(private.len(), group.len()) },
	}
	var to []*receiver
	for i, c := range []struct {
		id, filter string
		version    byte
		tally      *tally
	}{
		{"private", "once/#", wire.V311, private},
		{"one", "$share/g/once/+", wire.V5, group},
		{"two", "$share/g/once/+", wire.V311, group},
	} {
		to = append(to, &receiver{
			endpoint: point(c.id, c.version), filter: c.filter, got: c.tally.add,
			pending: map[uint16]bool{}, rng: rand.New(rand.NewPCG(s, uint64(10+i))),
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	var clients sync.WaitGroup
	defer clients.Wait()
	defer cancel()
	for _, r := range to {
		clients.Go(func() { r.run(ctx, 20, r.serve) })
		select {
		case <-r.reached:
		case <-time.After(harness.Patience):
			t.Fatal("no SUBACK")
		}
	}
	sending, stop := context.WithCancel(ctx)
	defer stop()
	clients.Go(func() { from.run(sending, 65535, from.serve) })
	for round := range rounds() {
		pause(ctx, time.Duration(50+rng.IntN(400))*time.Millisecond)
		if round%2 == 0 {
			kill()
			continue
		}
		from.cut()
		for _, r := range to {
			if rng.IntN(2) == 0 {
				r.cut()
			}
		}
	}
	from.enough.Store(true)
	select {
	case <-from.done:
	case <-time.After(30 * time.Second):
		t.Fatal("not all is published")
	}
	stop()
	most := from.next
	for last, moved := 0, time.Now(); private.len() < most || group.len() < most; pause(ctx, 10*time.Millisecond) {
		if now := private.len() + group.len(); now > last {
			last, moved = now, time.Now()
		} else if time.Since(moved) > 15*time.Second {
			break
		}
	}
	pause(ctx, 300*time.Millisecond) // for what may come twice
	t.Logf("%d messages", most)
	for name, c := range map[string]*tally{"private": private, "group": group} {
		if n := c.len(); n != most {
			t.Errorf("%s: %d of %d messages", name, n, most)
		}
		if len(c.twice) > 0 {
			t.Errorf("%s: %d messages came twice, e.g. %q", name, len(c.twice), c.twice[:min(5, len(c.twice))])
		}
	}
	for _, e := range []*endpoint{&from.endpoint, &to[0].endpoint, &to[1].endpoint, &to[2].endpoint} {
		if e.lost > 0 {
			t.Errorf("%s: %d sessions were lost", e.id, e.lost)
		}
	}
}
