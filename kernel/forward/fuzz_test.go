package forward

import (
	"bytes"
	"slices"
	"testing"

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

// seeds are streams of a client's node.
func seeds() (list [][]byte) {
	arg := func(m method, args []byte) []byte {
		return frame(kindCall, append(codec.AppendUint(nil, 1), append([]byte{byte(m)}, args...)...))
	}
	name := codec.AppendString(nil, "q")
	join := appendAddress([]byte{9, 3}, &kernel.GroupAddress{Tenant: "/", Group: "q", Topic: "q"})
	join = append(appendMemberOptions(join, &kernel.MemberOptions{Tag: "t"}), 1)
	publish, _ := appendPublish(nil, &publish{publisher: 2, number: 1, key: "q"}, &kernel.Record{Value: []byte("v")}, &kernel.PublishOptions{}, nil)
	return [][]byte{
		slices.Concat(frame(kindPublisher, []byte{2}), frame(kindPublish, append(publish, 'v')), frame(kindUnpublish, []byte{2}), frame(kindLeft, nil)),
		slices.Concat(frame(kindPool, []byte{3, 20}), frame(kindPoolPut, []byte{3, 2}), frame(kindUnpool, []byte{3})),
		slices.Concat(arg(methodDeclareQueue, appendQueueSpec(nil, &broker.QueueSpec{Name: "q", Durable: true})), arg(methodJoin, join),
			frame(kindCredit, []byte{9, 20}), frame(kindSettle, []byte{9, 0, 0, 0, 2}), arg(methodStop, []byte{9}), arg(methodAcquire, []byte{9, 2, 127}), arg(methodLeave, []byte{9})),
		slices.Concat(arg(methodQueue, name), arg(methodExchange, name), arg(methodHasTag, name), arg(methodAddress, name), arg(methodPool, []byte{9, 3})),
		frame(kindDescribed, appendChannels(nil, []kernel.ChannelStatus{{Number: 1}})),
	}
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
	hello := frame(kindOpen, appendInfo(appendIdentity(nil, kernel.Identity{User: "guest", Tenant: "/"}), &kernel.ConnectionInfo{Protocol: "fuzz"}))
	f.Fuzz(func(t *testing.T, stream []byte) {
		near, far := pipe()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = server.ServeClient("2", far)
		}()
		read := make(chan struct{})
		go func() {
			defer close(read)
			for {
				select {
				case <-near.in:
				case <-done:
					return
				}
			}
		}()
		_ = near.Send(hello)
		_ = near.Send(stream)
		close(near.over)
		<-done
		<-read
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
	f.Fuzz(func(t *testing.T, stream []byte) {
		near, far := pipe()
		l := newLink(deaf{near}, nil, func(error) {})
		l.start()
		_ = far.Send(opened)
		if err := <-l.opened; err != nil {
			t.Fatal(err)
		}
		l.out.mu.Lock()
		m := &member{link: l, id: l.nextID(), to: newInbox(), credit: 5}
		l.members[m.id] = m
		l.out.mu.Unlock()
		done := newOutcomes()
		p := l.Publisher(done)
		if _, err := p.ToExchange("x", "k", &kernel.Record{}, kernel.PublishOptions{}, 7); err != nil {
			t.Fatal(err)
		}
		_ = far.Send(stream)
		close(far.over)
		<-l.done
		if len(done.got) != 1 {
			t.Errorf("%d outcomes", len(done.got))
		}
	})
}
