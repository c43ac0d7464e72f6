package forward

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// frame makes a frame.
func frame(k kind, body []byte) []byte {
	b, start := beginFrame(nil, k)
	return endFrame(append(b, body...), start)
}

// FuzzFrames: frames are the same however they are cut, and nothing announced is believed.
func FuzzFrames(f *testing.F) {
	f.Add(append(frame(kindCredit, []byte{1, 2}), frame(kindLeft, nil)...), uint16(3))
	f.Add([]byte{0, 0, 0, 1, 0, 0}, uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		all := func(size int) (out []byte, err error) {
			var in frames
			for m := range slices.Chunk(b, size) {
				err = in.feed(m, func(k kind, body []byte) error {
					out = append(out, frame(k, body)...)
					return nil
				})
				if err != nil {
					break
				}
				if cap(in.part) > 4*len(b)+keepBuffer {
					t.Fatalf("%d bytes for %d", cap(in.part), len(b))
				}
			}
			return out, err
		}
		if len(b) == 0 {
			return
		}
		whole, err := all(len(b))
		cutUp, again := all(int(cut)%len(b) + 1)
		if !bytes.Equal(whole, cutUp) || (err == nil) != (again == nil) || !bytes.HasPrefix(b, whole) {
			t.Errorf("%x %v, and cut %x %v", whole, err, cutUp, again)
		}
	})
}

// FuzzPublish: what is no publish is refused; what is one is written the same.
func FuzzPublish(f *testing.F) {
	opt := kernel.PublishOptions{Mandatory: true, Keys: []string{"a", "b"}, ID: kernel.DedupID{1}, Fields: list{{Name: "n", Kind: kernel.FieldInt, Bits: 5}}}
	r := kernel.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 5, Headers: []kernel.Header{{Key: "h"}, {Key: "i", Value: []byte("j")}}}
	b, _ := appendPublish(nil, &publish{publisher: 1, number: 2, exchange: "x", key: "k"}, &r, &opt, nil)
	f.Add(append(b, r.Value...))
	b, _ = appendPublish(nil, &publish{publisher: 1, number: 3, key: "k", named: true, once: true, known: true, use: 7}, &r, &kernel.PublishOptions{ID: opt.ID}, nil)
	f.Add(append(b, r.Value...))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		var p, q publish
		if p.read(b) != nil {
			return
		}
		opt := p.options()
		if p.typed {
			if opt.Fields.AppendFields(nil); p.fields.err != nil {
				return
			}
		}
		c, _ := appendPublish(nil, &p, &p.record, &opt, nil)
		if err := q.read(append(c, p.record.Value...)); err != nil {
			t.Fatal(err)
		}
		d, _ := appendPublish(nil, &q, &q.record, &opt, nil)
		if !bytes.Equal(c, d) || !bytes.Equal(p.record.Value, q.record.Value) {
			t.Errorf("%x became %x", c, d)
		}
		p.reset()
	})
}

// FuzzRecord: what is no record is refused; what is one is written the same.
func FuzzRecord(f *testing.F) {
	r := kernel.Record{Key: []byte("k"), Value: []byte("v"), Timestamp: 5, Headers: []kernel.Header{{Key: "h"}, {Key: "i", Value: []byte("j")}}}
	f.Add(appendRecord(nil, &r))
	f.Fuzz(func(t *testing.T, b []byte) {
		var one, two kernel.Record
		in := read(b)
		if in.record(&one); in.Err() != nil {
			return
		}
		c := appendRecord(nil, &one)
		if len(c) > recordSize(&one) {
			t.Errorf("%d bytes, more than %d", len(c), recordSize(&one))
		}
		again := read(c)
		if again.record(&two); again.Done() != nil || !bytes.Equal(appendRecord(nil, &two), c) {
			t.Errorf("%x became %x", b, c)
		}
	})
}

// FuzzState: what a session is, and its pins, are refused or read the same.
func FuzzState(f *testing.F) {
	state := kernel.SessionState{ClientID: "c", Expiry: 5, ExpiresAt: time.Unix(5, 6), Subscriptions: []kernel.Subscription{{Filter: "f", QoS: 1, Options: 2, Identifier: 3}}}
	pin := kernel.Pin{PinID: kernel.PinID{Number: 1, Count: 2}, Taken: true, Group: kernel.GroupAddress{Group: "g"}, Partition: 3, Offset: 4}
	f.Add(appendState(nil, &state), appendPins(nil, []broker.SessionPin{{Pin: pin, Filter: "f"}, {Pin: pin}}))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		in := read(a)
		if s := in.state(); in.Done() == nil {
			c := appendState(nil, &s)
			if again := read(c).state(); !bytes.Equal(appendState(nil, &again), c) {
				t.Errorf("%x became %x", a, c)
			}
		}
		in = read(b)
		if list := in.pins(); in.Done() == nil {
			if again := read(appendPins(nil, list)).pins(); !slices.Equal(again, list) {
				t.Errorf("%+v became %+v", list, again)
			}
		}
	})
}

// seeds are streams of a client's node.
func seeds() (list [][]byte) {
	arg := func(m method, args []byte) []byte {
		return frame(kindCall, append(codec.AppendUint(nil, 1), append([]byte{byte(m)}, args...)...))
	}
	name := codec.AppendString(nil, "q")
	join := appendAddress([]byte{9, 3}, &kernel.GroupAddress{Tenant: "/", Group: "q", Topic: "q"})
	join = append(appendMemberOptions(join, &kernel.MemberOptions{Tag: "t"}), 1)
	publish, _ := appendPublish(nil, &publish{publisher: 2, number: 1, key: "q"}, &kernel.Record{Value: []byte("v")}, &kernel.PublishOptions{}, nil)
	once := named()
	return [][]byte{
		slices.Concat(frame(kindPublisher, []byte{2}), frame(kindPublish, append(publish, 'v')), frame(kindUnpublish, []byte{2}), frame(kindLeft, nil)),
		slices.Concat(frame(kindPool, []byte{3, 20}), frame(kindPoolPut, []byte{3, 2}), frame(kindUnpool, []byte{3})),
		slices.Concat(arg(methodDeclareQueue, appendQueueSpec(nil, &broker.QueueSpec{Name: "q", Durable: true})), arg(methodJoin, join),
			frame(kindCredit, []byte{9, 20}), frame(kindSettle, []byte{9, 0, 0, 0, 2}), arg(methodStop, []byte{9}), arg(methodAcquire, []byte{9, 2, 127}), arg(methodLeave, []byte{9})),
		slices.Concat(arg(methodQueue, name), arg(methodExchange, name), arg(methodHasTag, name), arg(methodAddress, name), arg(methodPool, []byte{9, 3})),
		frame(kindDescribed, appendChannels(nil, []kernel.ChannelStatus{{Number: 1}})),
		slices.Concat(arg(methodSubscribe, append(appendSubscription([]byte{0, 1, 60}, &kernel.Subscription{Filter: "a", QoS: 2}), 0)),
			frame(kindCredit, []byte{60, 20}), frame(kindPin, []byte{60, 1, 1, 0, 0}), frame(kindTake, []byte{60, 1, 1, 0, 0}), frame(kindUnpin, []byte{60, 1, 1}),
			arg(methodRead, []byte{60, 0, 0}), arg(methodHold, []byte{60, 1, 0, 0}), frame(kindLetMember, []byte{60}), arg(methodUnsubscribe, []byte{1, 'a'})),
		slices.Concat(arg(methodSubscribe, appendSubscription([]byte{1, 1, 61}, &kernel.Subscription{Filter: "b"})), frame(kindRefuse, []byte{60, 1, 1, 0, 0})),
		slices.Concat(arg(methodRelease, []byte{2, 1, 2}), arg(methodPinNumber, []byte{1, 1}), frame(kindUnpinNumber, []byte{1, 1}), arg(methodPins, nil)),
		slices.Concat(arg(methodNext, []byte{8, 1, 1, '#', 2, 2, 0}), frame(kindLetCursor, []byte{8}), arg(methodRetainedAgain, []byte{1, 'a', 1})),
		slices.Concat(arg(methodSetWill, appendWill(nil, &kernel.Will{Topic: "w", Delay: 1, Record: kernel.Record{Value: []byte("v")}})), arg(methodDropWill, nil)),
		slices.Concat(arg(methodKeep, []byte{2, 'x'}), arg(methodKept, nil), frame(kindLiveTaken, []byte{0}), arg(methodDetach, []byte{2, 0})),
		slices.Concat(frame(kindPublisher, []byte{2}), frame(kindPublish, append(once, 'v')), arg(methodDetach, []byte{0, 1}), frame(kindLeft, nil)),
		slices.Concat(frame(kindPublisher, []byte{2}), frame(kindBatch, batchFrame(2, 1, 0, batchOf("v"))), frame(kindBatch, batchFrame(2, 2, 0, nil))),
		slices.Concat(arg(methodCreateTopic, appendTopicSpec(nil, &broker.TopicSpec{Name: "t", Partitions: 2})), arg(methodAutoCreateTopic, name),
			arg(methodTopic, name), arg(methodTopicByID, make([]byte, 16)), arg(methodTopics, nil), arg(methodActs, slices.Concat(name, name)), arg(methodDeleteTopic, name)),
		slices.Concat(arg(methodReadLogs, appendLogRead(nil, &broker.LogRead{Parts: make([]broker.LogPart, 1), MaxBytes: 5, MinBytes: 6, Wait: 7})),
			arg(methodLogOffsets, appendLogQueries(nil, []broker.LogQuery{{Point: broker.LogNewest}}))),
		slices.Concat(arg(methodCommitOffsets, appendCommits(slices.Concat(name, name), []broker.OffsetCommit{{Offset: 5, Metadata: "m"}})), arg(methodOffsets, name),
			arg(methodOffsetGroups, nil), arg(methodDeleteOffsets, name), arg(methodNewProducerID, nil)),
	}
}

// batchFrame is the body of a frame with a batch for a topic that there is not.
func batchFrame(publisher, number uint64, partition int32, batch []byte) []byte {
	b := codec.AppendUint(codec.AppendUint(nil, publisher), number)
	return append(appendPlaceOf(b, kernel.TopicID{1}, partition), batch...)
}

// FuzzTopic: topics, and what was read of them, are refused or read the same.
func FuzzTopic(f *testing.F) {
	topic := kernel.Topic{Name: "t", Partitions: 3, Queue: &kernel.Queue{Durable: true, Arguments: []kernel.Argument{{Name: "a", Value: true}}}, ExpiresAt: time.Unix(5, 6)}
	logs := broker.LogRead{Epoch: 3, Parts: []broker.LogPart{{Offset: 5, End: 6, Bytes: 2, Records: 1, Chunks: [][2]int{{0, 2}}}, {Start: -1, Err: errGone()}}, Data: []byte("ab")}
	f.Add(appendTopic(nil, &topic), appendLogs(nil, &logs))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		in := read(a)
		if one := in.topic(); in.Done() == nil {
			c := appendTopic(nil, one)
			if again := read(c).topic(); !bytes.Equal(appendTopic(nil, again), c) {
				t.Errorf("%x became %x", a, c)
			}
		}
		in = read(b)
		epoch, parts := in.logs(2)
		if in.Err() != nil {
			return
		}
		q := broker.LogRead{Epoch: epoch, Parts: parts, Data: in.B}
		parts[0].Chunks = [][2]int{{0, len(in.B)}}
		c := appendLogs(nil, &q)
		if again, list := read(c).logs(2); again != epoch || list[0].Offset != parts[0].Offset || list[1].Bytes != parts[1].Bytes {
			t.Errorf("%x became %x", b, c)
		}
	})
}

// named is a publish to a topic under a number.
func named() []byte {
	b, _ := appendPublish(nil, &publish{publisher: 2, number: 1, key: "a", named: true, once: true, use: 3}, &kernel.Record{Value: []byte("v")}, &kernel.PublishOptions{}, nil)
	return b
}

// FuzzSession: no bytes of another node do more to the one that serves than end their
// stream.
func FuzzSession(f *testing.F) {
	for _, s := range seeds() {
		f.Add(s)
	}
	server := NewServer(nil, zerolog.Nop())
	b := open(f)
	server.serving = func() *broker.Broker { return b }
	n := &network{t: f, server: server}
	f.Fuzz(func(t *testing.T, stream []byte) {
		b := n.bare(t)
		b.ask(attaching(broker.Attaching{ClientID: "fuzz"}))
		b.send(stream)
		b.over()
		_ = b.wait()
	})
}

// deaf is a stream on which nothing comes.
type deaf struct{ *end }

func (deaf) Send([]byte) error { return nil }

// FuzzLink: no bytes of the node that serves do more to a front-end than end the link.
func FuzzLink(f *testing.F) {
	var v kernel.View
	v.Value = []byte("v")
	deliver := appendDeliveries([]byte{1}, []kernel.Delivery{{Record: &v, Acquired: 1}})
	opened := frame(kindOpened, appendAlarms(nil, &broker.Alarms{}))
	f.Add(frame(kindDeliver, deliver))
	f.Add(slices.Concat(frame(kindOutcomes, []byte{2, 1, 1, 1, 0}), frame(kindRouted, []byte{2, 1, 2, 0}), frame(kindLeave, nil)))
	f.Add(slices.Concat(frame(kindEnded, appendError([]byte{1}, errGone())), frame(kindEnd, appendError(nil, errGone())), frame(kindDescribe, nil)))
	f.Add(frame(kindAlarms, appendAlarms(nil, &broker.Alarms{Disk: broker.Alarm{On: true}})))
	f.Add(frame(kindResult, []byte{3, 0}))
	f.Add(frame(kindOutcomes, []byte("\x02\x01\x01\x01\x00trailing")))
	f.Add(slices.Concat(frame(kindStored, []byte{2, 2, 10, 0}), frame(kindStored, []byte{2, 1, 10, 0})))
	f.Add(frame(kindDeclined, appendError([]byte{2, 2}, errGone())))
	live := appendRecord(codec.AppendString([]byte{1, 5}, "a"), &kernel.Record{Value: []byte("v")})
	f.Add(slices.Concat(frame(kindLive, live), frame(kindLive, live), frame(kindClaimed, []byte{2}), frame(kindPinned, []byte{1, 0, 1, 7}), frame(kindTaken, []byte{1, 0, 1, 7})))
	f.Fuzz(func(t *testing.T, stream []byte) {
		near, far := pipe()
		l := newLink(deaf{near}, nil, func(error) {})
		l.start()
		_ = far.Send(opened)
		if err := <-l.opened; err != nil {
			t.Fatal(err)
		}
		l.out.mu.Lock()
		to := newSubscriber()
		m := &member{link: l, id: l.nextID(), to: to, credit: 5}
		l.members[m.id] = m
		l.live.feeds[m.id] = &feed{to: to}
		l.attached = &attached{link: l, id: 2, taken: func() {}}
		l.out.mu.Unlock()
		done := newOutcomes()
		p := l.Publisher(done)
		if _, err := p.ToExchange("x", "k", &kernel.Record{}, kernel.PublishOptions{}, 7); err != nil {
			t.Fatal(err)
		}
		if err := p.ToPartition(&kernel.Topic{}, 0, []byte("batch"), 8); err != nil {
			t.Fatal(err)
		}
		_ = far.Send(stream)
		close(far.over)
		<-l.done
		if len(done.got) != 2 {
			t.Errorf("%d outcomes", len(done.got))
		}
	})
}
