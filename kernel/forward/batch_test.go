package forward

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/kernel/edge"
)

// stored collects outcomes with their offsets, and what was declined.
type stored struct {
	*outcomes
	offsets  map[uint64]int64
	declined map[uint64]bool
}

func newStored() *stored {
	return &stored{newOutcomes(), make(map[uint64]int64), make(map[uint64]bool)}
}

func (s *stored) Completed(token uint64, res kernel.Result) {
	s.mu.Lock()
	s.offsets[token] = res.Offset
	s.mu.Unlock()
	s.outcomes.Completed(token, res)
}

func (s *stored) Declined(token uint64, err error) {
	s.mu.Lock()
	s.declined[token] = true
	s.mu.Unlock()
	s.outcomes.Completed(token, kernel.Result{Offset: -1, Err: err})
}

// TestBatches: batches are stored as they are, and their outcomes say where.
func TestBatches(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	kt := c.logTopic("log", 2)
	done := newStored()
	p := c.Publisher(done)
	large := strings.Repeat("x", 700<<10)
	for i, at := range []int32{0, 1, 0, 0} {
		if err := p.ToPartition(kt, at, batchOf(fmt.Sprint(i), large), uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Settle(soon(t)); err != nil {
		t.Fatal(err)
	}
	for token, err := range done.wait(t, 4) {
		if want := []int64{0, 0, 2, 4}[token]; err != nil || done.offsets[token] != want {
			t.Errorf("%d: at %d, %v; want %d", token, done.offsets[token], err, want)
		}
	}
	q := reads(kt, 0, 0, 1)
	if err := c.ReadLogs(soon(t), q); err != nil {
		t.Fatal(err)
	}
	if got := values(t, q, 0); !slices.Equal(got, []string{"0", large, "2", large, "3", large}) {
		t.Errorf("%.20q", got)
	}
	l := c.Link.(*link)
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if l.underway != 0 {
		t.Errorf("%d bytes are under way", l.underway)
	}
}

// TestRefusedBatch: a batch that is refused is declined, with the broker's reason, and those
// after it are stored; so is one after another publish that was a mistake.
func TestRefusedBatch(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	kt := c.logTopic("log", 1)
	done := newStored()
	p := c.Publisher(done)
	torn := batchOf("torn")
	torn[len(torn)-1]++
	for i, b := range []struct {
		topic     *kernel.Topic
		partition int32
		batch     []byte
	}{
		{kt, 0, batchOf("a")}, {&kernel.Topic{ID: kernel.TopicID{9}}, 0, batchOf("b")}, {kt, 1, batchOf("c")}, {kt, -1, batchOf("c")},
		{kt, 0, torn}, {kt, 0, nil}, {kt, 0, batchOf("d")},
	} {
		if err := p.ToPartition(b.topic, b.partition, b.batch, uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	got := done.wait(t, 7)
	for token, code := range map[uint64]kernel.Code{1: kernel.CodeNotFound, 2: kernel.CodeNotFound, 3: kernel.CodeNotFound, 4: kernel.CodeCorrupt, 5: kernel.CodeCorrupt} {
		if wantCode(t, got[token], code); !done.declined[token] {
			t.Errorf("%d was not declined", token)
		}
	}
	if got[0] != nil || got[6] != nil || done.offsets[0] != 0 || done.offsets[6] != 1 {
		t.Errorf("%v %v", got, done.offsets)
	}
	if _, err := p.ToExchange("none", "k", &kernel.Record{}, kernel.PublishOptions{}, 7); err != nil {
		t.Fatal(err)
	}
	if err := p.ToPartition(kt, 0, batchOf("e"), 8); err != nil {
		t.Fatal(err)
	}
	if got := done.wait(t, 9); got[8] != nil || done.offsets[8] != 2 || kernel.CodeOf(got[7]) != kernel.CodeNotFound {
		t.Errorf("%v %v", got, done.offsets)
	}
	plain := newOutcomes() // is told as of an outcome
	if err := c.Publisher(plain).ToPartition(kt, 5, batchOf("f"), 1); err != nil {
		t.Fatal(err)
	}
	wantCode(t, plain.wait(t, 1)[1], kernel.CodeNotFound)
}

// TestBatchesOfAProducer: a batch that comes again has the offset of the first; one that is
// out of order is not declined, that is its outcome.
func TestBatchesOfAProducer(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	kt := c.logTopic("log", 1)
	id, err := c.NewProducerID(soon(t))
	if err != nil {
		t.Fatal(err)
	}
	done := newStored()
	p := c.Publisher(done)
	for i, sequence := range []int32{0, 2, 2, 9} {
		if err := p.ToPartition(kt, 0, batchFrom(id, sequence, "a", "b"), uint64(i)); err != nil {
			t.Fatal(err)
		}
	}
	got := done.wait(t, 4)
	if got[0] != nil || got[1] != nil || got[2] != nil || done.offsets[1] != 2 || done.offsets[2] != 2 {
		t.Errorf("%v %v", got, done.offsets)
	}
	if wantCode(t, got[3], kernel.CodeSequenceGap); len(done.declined) > 0 {
		t.Error(done.declined)
	}
}

// TestBatchesAmongOthers: outcomes of a publisher that sends batches and other publishes are
// those of each.
func TestBatchesAmongOthers(t *testing.T) {
	c := serve(t, open(t)).connect(t)
	c.declare("q")
	kt := c.logTopic("log", 1)
	done := newStored()
	p := c.Publisher(done)
	for i := range uint64(300) {
		var err error
		switch i % 3 {
		case 0:
			_, err = p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{Mandatory: i%2 == 0}, i)
		case 1:
			err = p.ToPartition(kt, 0, batchOf("v"), i)
		case 2:
			_, err = p.ToTopic("log", &kernel.Record{Value: []byte("v")}, i)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Settle(soon(t)); err != nil {
		t.Fatal(err)
	}
	before := int64(-1)
	for i, got := uint64(0), done.wait(t, 300); i < 300; i++ {
		switch at := done.offsets[i]; {
		case got[i] != nil:
			t.Errorf("%d: %v", i, got[i])
		case i%3 != 1 && at != -1:
			t.Errorf("%d: at %d", i, at)
		case i%3 == 1 && at <= before:
			t.Errorf("%d: at %d, after %d", i, at, before)
		case i%3 == 1:
			before = at
		}
	}
	if info, err := c.Queue("q"); err != nil || info.Ready != 100 {
		t.Errorf("%+v %v", info, err)
	}
	q := reads(kt, 0, 0)
	if err := c.ReadLogs(soon(t), q); err != nil || q.Parts[0].Records != 200 {
		t.Errorf("%+v %v", q.Parts, err)
	}
}

// TestBatchesCut: when the stream breaks batches under way have unknown outcomes, and no
// offset.
func TestBatchesCut(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t)
	kt := c.logTopic("log", 1)
	done := newStored()
	p := c.Publisher(done)
	shut := make(chan struct{})
	n.near.gate.Store(&shut) // no outcome comes
	for i := range uint64(5) {
		if err := p.ToPartition(kt, 0, batchOf("v"), i); err != nil {
			t.Fatal(err)
		}
	}
	n.near.Close()
	for token, err := range done.wait(t, 5) {
		if wantCode(t, err, kernel.CodeUnknown); done.offsets[token] != -1 || done.declined[token] {
			t.Errorf("%d: at %d, declined %v", token, done.offsets[token], done.declined[token])
		}
	}
	wantCode(t, p.ToPartition(kt, 0, batchOf("v"), 9), kernel.CodeUnavailable)
}

// TestBatchesUnderPressure: batches that the broker is short of memory for are declined at
// once, also behind what is held back; none waits at either node.
func TestBatchesUnderPressure(t *testing.T) {
	n := serve(t, open(t, func(c *broker.Config) { c.Limits.MemoryBytes = 1 }))
	c := n.connect(t)
	c.declare("q")
	kt := c.logTopic("log", 1)
	eventually(t, "the alarm", func() bool { return c.Alarms().Any() })
	done := newStored()
	p := c.Publisher(done)
	if err := p.ToPartition(kt, 0, batchOf("v"), 1); err != nil {
		t.Fatal(err)
	}
	wantCode(t, done.wait(t, 1)[1], kernel.CodePressure)
	if _, err := p.ToExchange("", "q", &kernel.Record{}, kernel.PublishOptions{}, 2); err != nil { // is held
		t.Fatal(err)
	}
	if err := p.ToPartition(kt, 0, batchOf("v"), 3); err != nil {
		t.Fatal(err)
	}
	if wantCode(t, done.wait(t, 2)[3], kernel.CodePressure); !done.declined[1] || !done.declined[3] {
		t.Error(done.declined)
	}
	l := c.Link.(*link)
	l.out.mu.Lock()
	l.underway += window
	l.out.mu.Unlock()
	wantCode(t, p.ToPartition(kt, 0, batchOf("v"), 4), kernel.CodePressure)
	l.out.mu.Lock()
	l.underway -= window
	l.out.mu.Unlock()
	n.only().pressure.stop() // as if the client was here by another stream
	if err := p.ToPartition(kt, 0, batchOf("v"), 5); err != nil {
		t.Fatal(err)
	}
	wantCode(t, done.wait(t, 4)[5], kernel.CodeUnavailable)
}

// TestLogsOfTheNextLink: reads go on through the next link when one breaks, and so do
// publishers.
func TestLogsOfTheNextLink(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	door := edge.New(edge.Config{Counters: b.Counters})
	t.Cleanup(door.Close)
	door.Set(NewHost(n, "1"))
	c, err := door.Connect(kernel.Identity{User: "guest", Tenant: "/"}, kernel.ConnectionInfo{Protocol: "test", Remote: loopback},
		func(reason error) { t.Errorf("ended: %v", reason) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	kt := (&client{Link: c, t: t}).logTopic("log", 1)
	done := newStored()
	p := c.Publisher(done)
	publish := func(token uint64) {
		t.Helper()
		eventually(t, "it is published", func() bool { return p.ToPartition(kt, 0, batchOf(fmt.Sprint(token)), token) == nil })
		if err := done.wait(t, int(token))[token]; err != nil {
			t.Error(err)
		}
	}
	publish(1)
	q := reads(kt, patience, 0)
	q.Parts[0].Offset = 1
	read := polling(t, n, &client{Link: c, t: t}, q)
	first := n.only()
	n.near.Close()
	eventually(t, "it reads through another link", func() bool {
		s := n.only()
		if s == nil || s == first {
			return false
		}
		s.out.mu.Lock()
		defer s.out.mu.Unlock()
		return s.calls == 1
	})
	publish(2)
	if err := <-read; err != nil || !slices.Equal(values(t, q, 0), []string{"2"}) || done.offsets[2] != 1 {
		t.Errorf("%+v %v, at %d", q.Parts, err, done.offsets[2])
	}
}
