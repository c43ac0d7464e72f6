package forward

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// pub publishes with tokens from 1.
type pub struct {
	t    testing.TB
	p    edge.Publisher
	done *outcomes
	n    uint64
}

func publishing(t testing.TB, c *client) *pub {
	done := newOutcomes()
	return &pub{t: t, p: c.Publisher(done), done: done}
}

func (p *pub) to(exchange, key, value string) {
	p.t.Helper()
	p.n++
	n, err := p.p.ToExchange(exchange, key, &kernel.Record{Key: []byte(key), Value: []byte(value)}, kernel.PublishOptions{}, p.n)
	if n != 1 || err != nil {
		p.t.Fatal(n, err)
	}
}

// settle waits for all outcomes, none of which may be an error.
func (p *pub) settle() {
	p.t.Helper()
	if err := p.p.Settle(soon(p.t)); err != nil {
		p.t.Fatal(err)
	}
	for token, err := range p.done.wait(p.t, int(p.n)) {
		if err != nil {
			p.t.Errorf("publish %d: %v", token, err)
		}
	}
}

// largeRecords lets records be large.
func largeRecords(c *broker.Config) { c.Limits.Placement.RecordBytes = 24 << 20 }

// TestPublishAndConsume: a message comes out as it went in.
func TestPublishAndConsume(t *testing.T) {
	c := serve(t, open(t, largeRecords)).connect(t)
	c.declare("q")
	p := publishing(t, c)
	large := make([]byte, 20<<20)
	rand.NewChaCha8([32]byte{}).Read(large)
	sent := []kernel.Record{
		{Key: []byte("q"), Value: []byte("v"), Timestamp: 5, Headers: []kernel.Header{{Key: "h", Value: []byte("1")}, {Key: "null"}}},
		{Key: []byte("another"), Value: []byte{}, Timestamp: 6},
		{Value: nil, Timestamp: 7},
		{Key: []byte("q"), Value: large},
	}
	for i := range sent {
		p.n++
		if n, err := p.p.ToExchange("", "q", &sent[i], kernel.PublishOptions{}, p.n); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}
	p.settle()
	in := newInbox()
	m := c.join("q", kernel.MemberOptions{}, nil, in)
	m.Credit(10)
	for i, d := range in.wait(t, len(sent)) {
		r := d.Record.Record()
		if string(r.Key) != string(sent[i].Key) || !bytes.Equal(r.Value, sent[i].Value) || (r.Value == nil) != (sent[i].Value == nil) || r.Timestamp != sent[i].Timestamp {
			t.Errorf("%d: %.20q %.20q %d", i, r.Key, r.Value, r.Timestamp)
		}
		if d.Offset != int64(i) || d.Acquired != 1 || d.Failed != 0 || d.Redelivered || !d.Record.IsOwn() {
			t.Errorf("%d: %+v", i, d)
		}
		if v, ok := d.Record.Header("null"); i == 0 && (v != nil || !ok) {
			t.Error("a null header")
		}
		m.Settle(kernel.Accept, d.Partition, d.Offset, d.Offset)
	}
	m.Leave()
	if info, err := c.Queue("q"); err != nil || info.Ready != 0 || info.Held != 0 {
		t.Errorf("%+v %v", info, err)
	}
}

// TestOutcomes: what the broker refuses at once is the outcome; a mandatory publish tells
// how many targets it has; typed headers are seen, each way.
func TestOutcomes(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	c.declare("q")
	p := publishing(t, c)
	r := &kernel.Record{Value: []byte("v")}
	must := kernel.PublishOptions{Mandatory: true}
	if n, err := p.p.ToExchange("none", "k", r, kernel.PublishOptions{}, 1); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	wantCode(t, p.done.wait(t, 1)[1], kernel.CodeNotFound)
	_, err := publishing(t, c).p.ToExchange("none", "k", r, must, 2)
	wantCode(t, err, kernel.CodeNotFound)
	p = publishing(t, c)
	if n, err := p.p.ToExchange("", "missing", r, must, 3); n != 0 || err != nil {
		t.Fatal(n, err)
	}
	if n, err := p.p.ToExchange("", "q", r, must, 4); n != 1 || err != nil {
		t.Fatal(n, err)
	}
	if err := p.done.wait(t, 1)[4]; err != nil {
		t.Error(err)
	}
	if _, err := publishing(t, c).p.RetainAt("amq.direct", "k", r, must, 5); kernel.CodeOf(err) != kernel.CodeInvalid {
		t.Error(err)
	}
	if n, err := p.p.RetainAt(kernel.ExchangeTopic, "k", r, kernel.PublishOptions{}, 6); n != 1 || err != nil {
		t.Error(n, err)
	}
	if err := p.done.wait(t, 2)[6]; err != nil {
		t.Error(err)
	}
	if err := c.Bind(soon(t), kernel.Binding{Exchange: kernel.ExchangeHeaders, Queue: "q", Arguments: []kernel.Argument{{Name: "n", Value: int64(5)}}}); err != nil {
		t.Fatal(err)
	}
	typed := kernel.PublishOptions{Mandatory: true, Fields: list{{Name: "n", Kind: kernel.FieldInt, Bits: 5}}}
	if n, err := p.p.ToExchange(kernel.ExchangeHeaders, "", r, typed, 7); n != 1 || err != nil {
		t.Error(n, err)
	}
	typed.Fields = list{{Name: "n", Kind: kernel.FieldText, Text: "5"}}
	if n, err := p.p.ToExchange(kernel.ExchangeHeaders, "", r, typed, 8); n != 0 || err != nil {
		t.Error(n, err)
	}
	more := kernel.PublishOptions{Mandatory: true, Keys: []string{"q", "other"}}
	if n, err := p.p.ToExchange("", "missing", r, more, 9); n != 1 || err != nil {
		t.Error(n, err)
	}
	for range 2 { // the second is known
		p.n++
		if _, err := p.p.ToExchange("", "q", r, kernel.PublishOptions{ID: kernel.NewDedupID([]byte("id"))}, 10+p.n); err != nil {
			t.Error(err)
		}
	}
	if err := p.p.Settle(soon(t)); err != nil {
		t.Error(err)
	}
	if info, err := c.Queue("q"); err != nil || info.Ready != 4 {
		t.Errorf("%+v %v", info, err)
	}
}

// decliner collects completions, and what was declined.
type decliner struct {
	*outcomes
	declined chan uint64
}

func (d decliner) Declined(token uint64, err error) {
	d.Completed(token, kernel.Result{Err: err})
	d.declined <- token
}

// TestDeclined: a publish that the broker does not take is told apart from those that
// fail, and after a mistake nothing is done that was on its way meanwhile.
func TestDeclined(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	c.declare("q")
	d := decliner{newOutcomes(), make(chan uint64, 10)}
	p := &pub{t: t, p: c.Publisher(d), done: d.outcomes}
	p.to("", "q", "before")
	p.to("none", "k", "mistake")
	p.to("", "q", "after")
	got := d.wait(t, 3)
	if got[1] != nil {
		t.Error(got[1])
	}
	for _, token := range []uint64{2, 3} {
		wantCode(t, got[token], kernel.CodeNotFound)
		if at := <-d.declined; at != token {
			t.Errorf("publish %d was declined, want %d", at, token)
		}
	}
	if _, err := p.p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{Mandatory: true}, 4); kernel.CodeOf(err) != kernel.CodeNotFound {
		t.Error(err)
	}
	other := publishing(t, c)
	other.to("", "q", "another")
	other.settle()
	if info, err := c.Queue("q"); err != nil || info.Ready != 2 {
		t.Errorf("%+v %v", info, err)
	}
}

type list []kernel.Field

func (l list) AppendFields(dst []kernel.Field) []kernel.Field { return append(dst, l...) }

// TestClosedPublisherIsSilent: after Close no outcome is told, and its publishes happen.
func TestClosedPublisherIsSilent(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	c.declare("q")
	p := publishing(t, c)
	for range 100 {
		p.to("", "q", "v")
	}
	p.p.Close()
	p.done.mu.Lock()
	told := len(p.done.got)
	p.done.mu.Unlock()
	eventually(t, "all are there", func() bool { info, err := c.Queue("q"); return err == nil && info.Ready == 100 })
	l := c.Link.(*link)
	eventually(t, "the publisher is forgotten", func() bool {
		l.out.mu.Lock()
		defer l.out.mu.Unlock()
		return len(l.publishers) == 0 && l.underway == 0
	})
	if got := p.done.wait(t, told); len(got) != told {
		t.Errorf("%d outcomes after Close", len(got)-told)
	}
}
