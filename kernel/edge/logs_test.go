package edge

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/storage/record"
)

func batchOf(value string) []byte {
	var b record.Builder
	b.Reset()
	b.Append(&record.Record{Value: []byte(value), Timestamp: 1})
	return b.Finish(nil)
}

var newLog = broker.TopicSpec{Name: "log", Partitions: 1, Retention: kernel.RetainWeek}

// logHost is a host with something that happens behind its calls.
type logHost struct {
	Host
	made, deleted, reads func() error // what the call returns, nil = what it does
}

type logLink struct {
	Link
	h *logHost
}

func (h *logHost) Connect(id kernel.Identity, info kernel.ConnectionInfo, end func(error)) (Link, error) {
	l, err := h.Host.Connect(id, info, end)
	if err != nil {
		return nil, err
	}
	return logLink{l, h}, nil
}

func (l logLink) CreateTopic(ctx context.Context, spec broker.TopicSpec) (*kernel.Topic, error) {
	t, err := l.Link.CreateTopic(ctx, spec)
	if l.h.made != nil && err == nil {
		err = l.h.made()
	}
	return t, err
}

func (l logLink) DeleteTopic(ctx context.Context, name string) error {
	err := l.Link.DeleteTopic(ctx, name)
	if l.h.deleted != nil && err == nil {
		err = l.h.deleted()
	}
	return err
}

func (l logLink) ReadLogs(ctx context.Context, r *broker.LogRead) error {
	if l.h.reads != nil {
		return l.h.reads()
	}
	return l.Link.ReadLogs(ctx, r)
}

// lost is what a link says that breaks.
var lost error = kernel.Errorf(kernel.CodeUnknown, "", "", "lost")

// serveLogs lets a new facade serve.
func (w *world) serveLogs(h *logHost) {
	w.t.Helper()
	b, err := w.node.Serve(soon(w.t))
	must(w.t, err)
	w.now, h.Host = b, Local(b)
	w.Set(h)
}

// TestLogsOfTheNextHost: a topic is read and written through the next host; what is under
// way goes on there, and while nobody serves reads wait, and batches are refused.
func TestLogsOfTheNextHost(t *testing.T) {
	w := newWorld(t)
	h := &logHost{}
	w.serveLogs(h)
	c := w.conn()
	topic, err := c.CreateTopic(soon(t), newLog)
	must(t, err)
	done := newOutcomes()
	p := c.Publisher(done)
	must(t, p.ToPartition(topic, 0, batchOf("first"), 1))
	must(t, p.Settle(soon(t)))
	begun := make(chan struct{})
	var once sync.Once
	h.reads = func() error { // as of a link that breaks, when its host has gone
		once.Do(func() {
			w.Set(nil)
			w.rest()
			close(begun)
		})
		return lost
	}
	q := &broker.LogRead{MaxBytes: 1 << 20, MinBytes: 1, Wait: patience, Parts: []broker.LogPart{{Topic: topic.ID, Offset: 1, MaxBytes: 1 << 20}}}
	read := make(chan error, 1)
	go func() { read <- c.ReadLogs(soon(t), q) }()
	<-begun
	if err := p.ToPartition(topic, 0, batchOf("refused"), 2); kernel.CodeOf(err) != kernel.CodePressure {
		t.Error(err)
	}
	w.serve()
	_, err = c.linked(soon(t))
	must(t, err)
	must(t, p.ToPartition(topic, 0, batchOf("second"), 3))
	if err := <-read; err != nil || q.Parts[0].Records != 1 || q.Parts[0].Offset != 2 {
		t.Errorf("%+v %v", q.Parts, err)
	}
	must(t, p.Settle(soon(t)))
	if len(done.seen) != 2 || done.seen[1] != nil || done.seen[3] != nil {
		t.Error(done.seen)
	}
	again, err := c.TopicByID(soon(t), topic.ID, true)
	if must(t, err); again.Name != "log" {
		t.Errorf("%+v", again)
	}
	now, err := w.Coordinators(soon(t), "test")
	if must(t, err); len(now.Nodes) != 1 {
		t.Error(now)
	}
	must(t, c.CommitOffsets(soon(t), now.Nodes[0], "g", []broker.OffsetCommit{{Topic: topic.ID, Offset: 1}}))
}

// TestTopicMadeTwice: a topic that was made by a host that is lost before it says so is
// there, as it was asked for; one that somebody else has made otherwise is not. One that
// was deleted so has gone.
func TestTopicMadeTwice(t *testing.T) {
	w := newWorld(t)
	h := &logHost{}
	w.serveLogs(h)
	c := w.conn()
	move := func() error {
		h.made, h.deleted = nil, nil
		w.Set(nil)
		w.rest()
		w.serveLogs(h)
		return lost
	}
	h.made = move
	topic, err := c.CreateTopic(soon(t), newLog)
	if must(t, err); topic.Name != "log" || topic.Partitions != 1 {
		t.Errorf("%+v", topic)
	}
	if _, err := c.CreateTopic(soon(t), newLog); kernel.CodeOf(err) != kernel.CodeExists {
		t.Error(err)
	}
	h.deleted = move
	must(t, c.DeleteTopic(soon(t), "log"))
	if err := c.DeleteTopic(soon(t), "log"); kernel.CodeOf(err) != kernel.CodeNotFound {
		t.Error(err)
	}
	h.made = func() error {
		must(t, c.DeleteTopic(soon(t), "log"))
		other := newLog
		other.Partitions = 2
		h.made = nil
		_, err := c.CreateTopic(soon(t), other)
		must(t, err)
		return move()
	}
	if _, err := c.CreateTopic(soon(t), newLog); kernel.CodeOf(err) != kernel.CodeExists {
		t.Error(err)
	}
}

// TestPatienceOfAConnection: a call waits for a host as long as its connection says.
func TestPatienceOfAConnection(t *testing.T) {
	w := newWorld(t)
	w.serve()
	c := w.conn()
	c.SetPatience(time.Millisecond)
	w.Set(nil)
	w.rest()
	if _, err := c.Topics(soon(t)); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Error(err)
	}
}
