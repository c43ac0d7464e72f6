package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/retain"
	"github.com/trivium-mq/trivium/kernel/session"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// wills is a node with somebody who sees all wills.
type wills struct {
	t     *testing.T
	b     *Broker
	clock *clockAt
	in    *inbox
	seen  int
}

func newWills(t *testing.T, b *Broker, clock *clockAt) *wills {
	s, _ := attach(t, connect(t, b), "watcher", true, 0)
	_, in := subscribe(t, s, "#", 1)
	return &wills{t: t, b: b, clock: clock, in: in}
}

// want wants these wills, in this order, since the last call.
func (w *wills) want(values ...string) {
	w.t.Helper()
	got := w.in.wait(w.t, w.seen+len(values))
	if !slices.Equal(got[w.seen:], values) {
		w.t.Errorf("got %q, want %q", got[w.seen:], values)
	}
	w.seen = len(got)
}

// client attaches a session, with a will if value is not empty. It gives way to another.
func (w *wills) client(id string, clean bool, expiry, delay time.Duration, value string) (*Session, *Conn) {
	w.t.Helper()
	c := connect(w.t, w.b)
	var s *Session
	s, _, err := c.AttachSession(soon(w.t), Attaching{ClientID: id, Clean: clean, Expiry: expiry}, func() { go s.Detach(expiry) })
	if err != nil {
		w.t.Fatal(err)
	}
	if value != "" {
		topic := "will/" + id
		if err := s.SetWill(soon(w.t), &kernel.Will{Topic: topic, Delay: delay, Record: kernel.Record{Key: []byte(topic), Value: []byte(value)}}); err != nil {
			w.t.Fatal(err)
		}
	}
	return s, c
}

// stored says whether the will of a client is written down.
func (w *wills) stored(id string) bool {
	if err := w.b.durable.Put(soon(w.t), nil); err != nil { // behind what was published
		w.t.Fatal(err)
	}
	v, err := w.b.durable.Get(session.WillKey("/", id))
	if err != nil {
		w.t.Fatal(err)
	}
	return v != nil
}

func TestWills(t *testing.T) {
	w := newWills(t, open(t, t.TempDir()), nil)
	for _, expiry := range []time.Duration{0, time.Hour} {
		s, _ := w.client("plain", true, expiry, 0, "1")
		if w.stored("plain") != (expiry > 0) {
			t.Errorf("expiry %v: written down %v", expiry, w.stored("plain"))
		}
		s.Detach(expiry)
		w.want("will/plain=1")
		if w.stored("plain") {
			t.Error("still written down")
		}

		s, _ = w.client("farewell", true, expiry, 0, "2")
		if err := s.DropWill(); err != nil {
			t.Error(err)
		}
		s.Detach(expiry)

		_, c := w.client("closed", true, expiry, 0, "3") // the connection goes without a word
		c.Close()
		w.want("will/closed=3")
	}
	// A delay longer than the session: the end of the session counts.
	s, _ := w.client("short", true, 10*time.Millisecond, time.Hour, "4")
	s.Detach(10 * time.Millisecond)
	w.want("will/short=4")
	s, _ = w.client("short", true, time.Hour, time.Hour, "5") // shortened at the end
	s.Detach(0)
	w.want("will/short=5")
	s, _ = w.client("delayed", true, time.Hour, 20*time.Millisecond, "6")
	s.Detach(time.Hour)
	w.want("will/delayed=6")
}

// TestWillWaits: a session that goes on within the delay cancels the will; one
// that begins anew publishes it.
func TestWillWaits(t *testing.T) {
	w := newWills(t, open(t, t.TempDir()), nil)
	s, _ := w.client("a", true, time.Hour, time.Hour, "1")
	s.Detach(time.Hour)
	if !w.stored("a") {
		t.Error("not written down")
	}
	s, _ = w.client("a", false, time.Hour, time.Hour, "") // goes on, and has no will now
	if w.stored("a") {
		t.Error("a cancelled will is still written down")
	}
	s.Detach(time.Hour)
	s, _ = w.client("a", false, time.Hour, time.Hour, "2")
	s.Detach(time.Hour)
	s, _ = w.client("a", true, time.Hour, time.Hour, "3") // begins anew
	w.want("will/a=2")
	s.Detach(time.Hour)

	// Takeover: without a delay the will is published, with one it is not.
	w.client("b", true, time.Hour, 0, "4")
	w.client("b", false, time.Hour, 0, "5")
	w.want("will/b=4")
	w.client("c", true, time.Hour, time.Hour, "6")
	w.client("c", false, time.Hour, 0, "7")
	s, _ = w.client("c", true, time.Hour, 0, "")
	w.want("will/c=7")
	s.Detach(0)
}

// TestWillsOutliveTheNode: a node that loses power, or is stopped, publishes the
// wills of sessions that are kept: those that had begun to wait when they are due,
// the others after their delay from the restart. Each once.
func TestWillsOutliveTheNode(t *testing.T) {
	clock, fs := &clockAt{}, vfs.NewMem()
	start := func(fs vfs.FS) *Broker {
		return open(t, "data", func(c *Config) { c.FS, c.Now = fs, clock.now })
	}
	w := newWills(t, start(fs), clock)
	w.client("connected", true, 2*time.Hour, time.Hour, "1")
	w.client("at-once", true, 2*time.Hour, 0, "2")
	s, _ := w.client("waits", true, 2*time.Hour, time.Hour, "3")
	s.Detach(2 * time.Hour)
	s, _ = w.client("published", true, 2*time.Hour, 0, "4")
	s.Detach(2 * time.Hour)
	w.want("will/published=4")
	s, _ = w.client("left", true, 2*time.Hour, 0, "5")
	if err := s.DropWill(); err != nil {
		t.Fatal(err)
	}
	w.client("ends", true, time.Second, time.Hour, "6")

	clock.add(30 * time.Minute)
	// Nobody watches while the node starts: what a durable session gets tells.
	keep, _ := attach(t, connect(t, w.b), "keeper", true, 100*time.Hour)
	subscribe(t, keep, "will/#", 1)
	crashed := fs.CrashClone(nil)
	b := start(crashed)
	in := newInbox()
	keep, present := attach(t, connect(t, b), "keeper", false, 100*time.Hour)
	a, err := keep.Attach(soon(t), kernel.Subscription{Filter: "will/#", QoS: 1}, 0, in, in)
	if err != nil || !present {
		t.Fatal(present, err)
	}
	a.Member.Credit(100)
	got := in.wait(t, 2)
	slices.Sort(got)
	if !slices.Equal(got, []string{"2", "6"}) {
		t.Errorf("got %q", got)
	}
	if _, present := attach(t, connect(t, b), "connected", false, time.Hour); !present { // comes back in time
		t.Error("not present")
	}
	clock.add(29*time.Minute + 59*time.Second)
	w.b = b
	if !w.stored("waits") || w.stored("connected") {
		t.Error(w.stored("waits"), w.stored("connected"))
	}
	shut(t, b) // in order, which changes nothing
	clock.add(time.Second)
	b = start(crashed)
	keep, _ = attach(t, connect(t, b), "keeper", false, 100*time.Hour)
	in = newInbox()
	if a, err = keep.Attach(soon(t), kernel.Subscription{Filter: "will/#", QoS: 1}, 0, in, in); err != nil {
		t.Fatal(err)
	}
	a.Member.Credit(100)
	got = in.wait(t, 3) // two were not settled
	slices.Sort(got)
	if !slices.Equal(got, []string{"2", "3", "6"}) {
		t.Errorf("got %q", got)
	}
}

func TestWillMessage(t *testing.T) {
	clock := &clockAt{}
	b := open(t, t.TempDir(), func(c *Config) { c.Now = clock.now })
	c := connect(t, b)
	s, _ := attach(t, c, "c", true, time.Hour)
	headers := []kernel.Header{{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}}
	w := &kernel.Will{Topic: "t", Retain: true, Expiry: time.Minute, Record: kernel.Record{Key: []byte("t"), Value: []byte("v"), Headers: headers}}
	if err := s.SetWill(soon(t), w); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Hour)
	before := clock.now().UnixMilli()
	s.Detach(time.Hour)
	s, _ = attach(t, c, "c", true, time.Hour)
	r, err := s.Retained(soon(t), "t")
	if err != nil {
		t.Fatal(err)
	}
	list, _, err := r.Next(10, 1000, nil)
	if err != nil || len(list) != 1 {
		t.Fatal(list, err)
	}
	rec := list[0].Record
	if len(rec.Headers) != 3 || rec.Headers[0].Key != "a" || string(rec.Headers[0].Value) != "1" || rec.Headers[1].Value != nil {
		t.Errorf("%+v", rec.Headers)
	}
	if at, now := rec.Timestamp, clock.now().UnixMilli(); at < before || at > now {
		t.Errorf("published at %d", at)
	}
	if at := expiry(t, &rec) - rec.Timestamp; at != 60_000 {
		t.Errorf("expires after %d ms", at)
	}
	w.Topic = "a/+"
	wantCode(t, s.SetWill(soon(t), w), kernel.CodeInvalidName)
	s.Detach(time.Hour)
	wantCode(t, s.SetWill(soon(t), w), kernel.CodeFenced)
}

func expiry(t *testing.T, r *kernel.Record) int64 {
	t.Helper()
	at := retain.ExpiresAt(r)
	if at == 0 {
		t.Error("it does not expire")
	}
	return at
}

// TestWillWaitsForClients: a will that is in memory only, as its session ends with its
// connection, waits while the broker takes no publishes yet.
func TestWillWaitsForClients(t *testing.T) {
	w := newWills(t, open(t, t.TempDir()), nil)
	proceed := make(chan struct{})
	w.b.Gather(patience, func(ctx context.Context) {
		select {
		case <-proceed:
		case <-ctx.Done():
		}
	})
	for _, expiry := range []time.Duration{0, time.Hour} {
		s, _ := w.client("c", true, expiry, 0, "1")
		s.Detach(expiry)
	}
	close(proceed)
	w.want("will/c=1", "will/c=1")
}
