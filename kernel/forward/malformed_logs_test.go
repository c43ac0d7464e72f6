package forward

import (
	"errors"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// TestMalformedLogs: nonsense about logs ends the stream of who sends it, and that alone.
func TestMalformedLogs(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t)
	publisher := frame(kindPublisher, []byte{2})
	for name, bad := range map[string][]byte{
		"a batch of nobody":          frame(kindBatch, batchFrame(2, 1, 0, batchOf("v"))),
		"a batch after the end":      slices.Concat(publisher, frame(kindUnpublish, []byte{2}), frame(kindBatch, batchFrame(2, 1, 0, batchOf("v")))),
		"a batch of no number":       slices.Concat(publisher, frame(kindBatch, batchFrame(2, ofBatch, 0, batchOf("v")))),
		"a short batch":              slices.Concat(publisher, frame(kindBatch, []byte{2, 1, 9, 9})),
		"a short id":                 called(1, methodTopicByID, 1, 2),
		"a long name":                called(1, methodTopic, 1, 'a', 'b'),
		"topics of something":        called(1, methodTopics, 1),
		"acts on nothing":            called(1, methodActs, 1, 'a'),
		"a short topic":              called(1, methodCreateTopic, 1, 'a', 2),
		"too many parts":             called(1, methodReadLogs, 200, 1),
		"a read of no length":        called(1, methodReadLogs, 0, 2, 2),
		"a question for no time":     called(1, methodLogOffsets, append(codec.AppendUint(nil, 1), make([]byte, 17)...)...),
		"commits to no group":        called(1, methodCommitOffsets, 1, 'a'),
		"a commit without metadata":  called(1, methodCommitOffsets, append([]byte{1, 'a', 1, 'g', 1}, make([]byte, 19)...)...),
		"a large partition":          called(1, methodCommitOffsets, append(append([]byte{1, 'a', 1, 'g', 1}, make([]byte, 16)...), codec.AppendInt(nil, 1<<40)...)...),
		"a producer of something":    called(1, methodNewProducerID, 1),
		"a method that there is not": called(1, methodNewProducerID+1),
	} {
		b := n.bare(t)
		b.send(bad)
		if err := b.wait(); !errors.Is(err, errMalformed) {
			t.Errorf("%s: %v", name, err)
		}
	}
	c.logTopic("log", 1)
}

// told is a link that is told what a node that serves sends.
func told(t *testing.T) (l *link, far *end) {
	near, far := pipe()
	l = newLink(deaf{near}, nil, func(error) {})
	l.start()
	_ = far.Send(frame(kindOpened, appendAlarms(nil, &broker.Alarms{})))
	if err := <-l.opened; err != nil {
		t.Fatal(err)
	}
	return l, far
}

// TestMalformedStored: outcomes of batches that mean nothing end the link, and each batch
// has one outcome.
func TestMalformedStored(t *testing.T) {
	good := frame(kindStored, []byte{1, 2, 10, 0})
	for name, c := range map[string]struct {
		stream []byte
		want   error // of the batch; nil = it was stored
	}{
		"of nobody":         {frame(kindStored, []byte{9, 2, 10, 0}), errBroken()},
		"of no publish":     {frame(kindStored, []byte{1, 3, 10, 0}), errBroken()},
		"of a message":      {frame(kindStored, []byte{1, 1, 10, 0}), errBroken()},
		"of no kind":        {frame(kindOutcomes, []byte{1, 1, 2, 1, 0}), errBroken()},
		"without target":    {frame(kindStored, []byte{1, 2, 10, errNoTarget}), errBroken()},
		"trailing":          {frame(kindStored, []byte{1, 2, 10, 0, 0}), errBroken()},
		"twice":             {slices.Concat(good, good), nil},
		"declined after it": {slices.Concat(good, frame(kindDeclined, appendError([]byte{1, 2}, errGone()))), nil},
	} {
		l, far := told(t)
		done := newStored()
		p := l.Publisher(done)
		if _, err := p.ToExchange("x", "k", &kernel.Record{}, kernel.PublishOptions{}, 1); err != nil {
			t.Fatal(err)
		}
		if err := p.ToPartition(&kernel.Topic{}, 0, []byte("batch"), 2); err != nil {
			t.Fatal(err)
		}
		_ = far.Send(c.stream)
		<-l.done
		got := done.wait(t, 2)
		if wantCode(t, got[1], kernel.CodeUnknown); kernel.CodeOf(got[2]) != kernel.CodeOf(c.want) || (c.want == nil) != (done.offsets[2] == 5) {
			t.Errorf("%s: %v, at %d", name, got[2], done.offsets[2])
		}
	}
}

// TestMalformedAnswers: answers about logs that mean nothing end the link, and are no
// answers.
func TestMalformedAnswers(t *testing.T) {
	ask := func(answer []byte, do func(l *link) error) error {
		l, far := told(t)
		done := make(chan error, 1)
		go func() { done <- do(l) }()
		var id uint64
		eventually(t, "it is asked", func() bool {
			l.out.mu.Lock()
			defer l.out.mu.Unlock()
			for id = range l.calls {
				return true
			}
			return false
		})
		_ = far.Send(frame(kindResult, append(codec.AppendUint(nil, id), answer...)))
		<-l.done
		if n := l.recall.lasting(); n != 0 {
			t.Errorf("%d are remembered", n)
		}
		return <-done
	}
	good := appendLogs([]byte{errNone}, &broker.LogRead{Parts: []broker.LogPart{{Offset: 5, Bytes: 2, Records: 1, Chunks: [][2]int{{0, 2}}}}, Data: []byte("ab")})
	for name, answer := range map[string][]byte{
		"short": good[:4], "too little": good[:len(good)-1], "too much": append(slices.Clone(good), 'c'),
		"negative":         appendLogs([]byte{errNone}, &broker.LogRead{Parts: []broker.LogPart{{Bytes: -1}}}),
		"beside an error":  appendLogs([]byte{errNone}, &broker.LogRead{Parts: []broker.LogPart{{Bytes: 1, Chunks: [][2]int{{0, 1}}, Err: errGone()}}, Data: []byte("a")}),
		"of another error": appendLogs([]byte{errNone}, &broker.LogRead{}),
	} {
		q := &broker.LogRead{Parts: []broker.LogPart{{Offset: 1}}, Data: []byte("before")}
		if wantCode(t, ask(answer, func(l *link) error { return l.ReadLogs(soon(t), q) }), kernel.CodeUnknown); string(q.Data) != "before" || q.Parts[0].Offset != 1 {
			t.Errorf("%s: %+v", name, q)
		}
	}
	topic := appendTopic([]byte{errNone}, &kernel.Topic{Name: "t"})
	for _, answer := range [][]byte{topic[:len(topic)-1], append(topic, 0)} {
		wantCode(t, ask(answer, func(l *link) error { _, err := l.Topic(soon(t), "t", true); return err }), kernel.CodeUnknown)
	}
	wantCode(t, ask([]byte{errNone, 7, 7}, func(l *link) error { _, err := l.May(soon(t), kernel.AnyAct, "topic", "t"); return err }), kernel.CodeUnknown)
	answers := appendLogAnswers([]byte{errNone}, make([]broker.LogAnswer, 2))
	wantCode(t, ask(answers, func(l *link) error { _, err := l.LogOffsets(soon(t), make([]broker.LogQuery, 1)); return err }), kernel.CodeUnknown)
}
