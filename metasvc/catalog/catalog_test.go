package catalog

import (
	"bytes"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

func apply(t *testing.T, s *State, ops ...Op) *State {
	t.Helper()
	next, _, err := s.Apply(ops)
	if err != nil {
		t.Fatal(err)
	}
	return next
}

func queueTopic(id byte, name string) PutTopic {
	return PutTopic{kernel.Topic{ID: kernel.TopicID{id}, Tenant: "/", Name: name, Partitions: 1, Queue: &kernel.Queue{Durable: true}}}
}

func binding(exchange, queue, key string) Binding {
	return Binding{Tenant: "/", Binding: kernel.Binding{Exchange: exchange, Queue: queue, Key: key}}
}

func wantCode(t *testing.T, err error, code kernel.Code) {
	t.Helper()
	if err == nil || kernel.CodeOf(err) != code {
		t.Errorf("got %v, want code %d", err, code)
	}
}

func TestTopics(t *testing.T) {
	s := apply(t, &State{}, queueTopic(1, "q"))
	s = apply(t, s, queueTopic(1, "q")) // repeated
	_, _, err := s.Apply([]Op{queueTopic(2, "q")})
	wantCode(t, err, kernel.CodeExists)
	// A filter of that name is another one.
	filter := queueTopic(3, "q")
	filter.Topic.Kind = kernel.Filter
	s = apply(t, s, filter, PutGroup{Group{Address: kernel.QueueAddress("/", "q"), Topic: kernel.TopicID{1}}},
		PutGroup{Group{Address: kernel.GroupAddress{Tenant: "/", Group: "other", Topic: "q"}, Topic: kernel.TopicID{1}}},
		PutBinding{binding(kernel.ExchangeTopic, "q", "a.#")})
	_, _, err = s.Apply([]Op{PutGroup{Group{Topic: kernel.TopicID{9}}}})
	wantCode(t, err, kernel.CodeNotFound)
	before := s
	s = apply(t, s, DropTopic{kernel.TopicID{1}}, DropTopic{kernel.TopicID{1}})
	n := 0
	s.Topics(func(*kernel.Topic) { n++ })
	s.Groups(func(*Group) { n += 10 })
	s.Bindings(func(*Binding) { n += 100 })
	if n != 1 {
		t.Errorf("left over: %d", n)
	}
	if _, ok := before.Group(kernel.TopicID{1}, "other"); !ok {
		t.Error("an old snapshot has changed")
	}
	if s.Revision() != 4 {
		t.Errorf("revision %d", s.Revision())
	}
}

func TestBindings(t *testing.T) {
	x := PutExchange{kernel.Exchange{Tenant: "/", Name: "x", Type: kernel.Direct, Durable: true}}
	s := apply(t, &State{}, queueTopic(1, "q"), queueTopic(2, "q2"), x)
	_, _, err := s.Apply([]Op{PutBinding{binding("none", "q", "k")}})
	wantCode(t, err, kernel.CodeNotFound)
	_, _, err = s.Apply([]Op{PutBinding{binding("x", "none", "k")}})
	wantCode(t, err, kernel.CodeNotFound)
	changed := x
	changed.Exchange.Type = kernel.Fanout
	_, _, err = s.Apply([]Op{changed})
	wantCode(t, err, kernel.CodeExists)
	with := binding("x", "q", "k")
	with.Arguments = []kernel.Argument{{Name: "n", Value: int64(1)}}
	s = apply(t, s, PutBinding{binding("x", "q", "k")}, PutBinding{binding("x", "q", "k")}, PutBinding{with}, PutBinding{binding("x", "q2", "k\x00")})
	count := func(s *State) (n int) {
		s.Bindings(func(*Binding) { n++ })
		return n
	}
	if n := count(s); n != 3 {
		t.Errorf("%d bindings", n)
	}
	if n := count(apply(t, s, DropBinding{with}, DropBinding{with})); n != 2 {
		t.Errorf("%d bindings", n)
	}
	if n := count(apply(t, s, DropTopic{kernel.TopicID{1}})); n != 1 {
		t.Errorf("%d bindings", n)
	}
	if n := count(apply(t, s, DropExchange{"/", "x"})); n != 0 {
		t.Errorf("%d bindings", n)
	}
	// All or nothing.
	next, res, err := s.Apply([]Op{DropExchange{"/", "x"}, PutBinding{binding("x", "q", "k")}})
	if next != s || err == nil || res.Revision != s.Revision() {
		t.Errorf("a refused command changed something: %v", err)
	}
}

func TestProducers(t *testing.T) {
	s, res, _ := (&State{}).Apply([]Op{TakeProducers{10}})
	_, res2, _ := s.Apply([]Op{TakeProducers{10}})
	if res.Producers != 0 || res2.Producers != 10 {
		t.Error(res, res2)
	}
}

// ops draws commands that mostly succeed.
func ops(t *rapid.T) []Op {
	name := rapid.SampledFrom([]string{"a", "b", "c/d", "é"})
	args := rapid.SampledFrom([][]kernel.Argument{nil, {
		{Name: "b", Value: true}, {Name: "f", Value: 1.5}, {Name: "i", Value: int64(-7)}, {Name: "n", Value: nil},
		{Name: "r", Value: kernel.Raw("x")}, {Name: "s", Value: "text"}, {Name: "y", Value: []byte{1, 2}},
	}})
	queue := func() *kernel.Queue {
		if rapid.Bool().Draw(t, "queue") {
			return &kernel.Queue{Type: kernel.QueueType(rapid.IntRange(0, 2).Draw(t, "type")), Durable: true, AutoDelete: rapid.Bool().Draw(t, "auto"), Arguments: args.Draw(t, "args")}
		}
		return nil
	}
	id := func(n string) kernel.TopicID { return kernel.TopicID{n[0], 0, 1} }
	draw := func() Op {
		n := name.Draw(t, "name")
		bd := Binding{Tenant: "/", Binding: kernel.Binding{Exchange: kernel.ExchangeTopic, Queue: n, Key: name.Draw(t, "key"), Arguments: args.Draw(t, "args")}}
		switch rapid.IntRange(0, 8).Draw(t, "op") {
		case 0:
			return PutExchange{kernel.Exchange{Tenant: "/", Name: n, Type: kernel.Direct, Durable: true, Internal: true}}
		case 1:
			return DropExchange{"/", n}
		case 2, 3:
			top := kernel.Topic{ID: id(n), Tenant: "/", Name: n, Partitions: 3, Placement: 1, Auto: rapid.Bool().Draw(t, "auto"), Queue: queue(), Retention: kernel.RetainDay}
			if rapid.Bool().Draw(t, "expires") {
				top.ExpiresAt = time.UnixMilli(1_700_000_000_123)
			}
			return PutTopic{top}
		case 4:
			return DropTopic{id(n)}
		case 5:
			return PutGroup{Group{Address: kernel.GroupAddress{Tenant: "/", Kind: kernel.Filter, Group: name.Draw(t, "group"), Topic: n}, Topic: id(n), Owner: true, FailedLimit: 20, Start: kernel.Position{Kind: kernel.PositionKind(rapid.IntRange(1, 5).Draw(t, "start")), Value: rapid.Int64Range(0, 1<<40).Draw(t, "place")}, Queue: queue()}}
		case 6:
			return DropGroup{id(n), "a"}
		case 7:
			return PutBinding{bd}
		default:
			return TakeProducers{1000}
		}
	}
	list := make([]Op, rapid.IntRange(1, 4).Draw(t, "ops"))
	for i := range list {
		list[i] = draw()
	}
	return list
}

// TestReplay checks that commands survive their encoding, that a state survives
// a snapshot, and that both lead to the same.
func TestReplay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		direct, decoded := &State{}, &State{}
		for i := range rapid.IntRange(1, 20).Draw(t, "commands") {
			cmd := Command{ID: CommandID{Boot: 1 << 63, Seq: uint64(i)}, Ops: ops(t)}
			got, err := DecodeCommand(cmd.Append(nil))
			if err != nil || !reflect.DeepEqual(got, cmd) {
				t.Fatalf("got %+v, %v, want %+v", got, err, cmd)
			}
			direct, _, _ = direct.Apply(cmd.Ops)
			decoded, _, _ = decoded.Apply(got.Ops)
		}
		var a, b bytes.Buffer
		if err := errors.Join(direct.Write(&a), decoded.Write(&b)); err != nil {
			t.Fatal(err)
		}
		restored, err := Read(bytes.NewReader(a.Bytes()))
		if err != nil {
			t.Fatal(err)
		}
		var c bytes.Buffer
		if err := restored.Write(&c); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(a.Bytes(), b.Bytes()) || !bytes.Equal(a.Bytes(), c.Bytes()) {
			t.Fatal("replayed, restored and direct states differ")
		}
		if restored.Revision() != direct.Revision() {
			t.Fatalf("revision %d, want %d", restored.Revision(), direct.Revision())
		}
		n := rapid.IntRange(0, a.Len()-1).Draw(t, "cut")
		if _, err := Read(bytes.NewReader(a.Bytes()[:n])); !errors.Is(err, codec.ErrCorrupt) {
			t.Fatalf("a snapshot cut to %d bytes: %v", n, err)
		}
	})
}

func TestVersions(t *testing.T) {
	cmd := Command{ID: CommandID{1, 2}, Ops: []Op{DropExchange{"/", "x"}}}
	b := cmd.Append(nil)
	// Fixed bytes: version, boot, seq, count, op, two strings.
	if got := hex.EncodeToString(b); got != "01010201"+"02"+"012f"+"0178" {
		t.Errorf("encoding %s", got)
	}
	b[0] = Version + 1
	if _, err := DecodeCommand(b); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version: %v", err)
	}
	b[0], b[4] = Version, 99
	if _, err := DecodeCommand(b); !errors.Is(err, ErrVersion) {
		t.Errorf("unknown op: %v", err)
	}
	var snap bytes.Buffer
	if err := (&State{}).Write(&snap); err != nil {
		t.Fatal(err)
	}
	snap.Bytes()[4] = Version + 1
	if _, err := Read(&snap); !errors.Is(err, ErrVersion) {
		t.Errorf("wrong version of a snapshot: %v", err)
	}
}

func FuzzDecodeCommand(f *testing.F) {
	seeds := []Op{
		queueTopic(1, "q"), DropTopic{}, PutGroup{Group{Queue: &kernel.Queue{Arguments: []kernel.Argument{{Name: "a", Value: 1.5}}}}},
		PutBinding{binding("x", "q", "k")}, TakeProducers{5}, PutExchange{},
	}
	for i := range seeds {
		cmd := Command{ID: CommandID{7, uint64(i)}, Ops: seeds[:i+1]}
		f.Add(cmd.Append(nil))
	}
	f.Add([]byte{Version, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, b []byte) {
		cmd, err := DecodeCommand(b)
		if err != nil {
			if !errors.Is(err, codec.ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		again, err := DecodeCommand(cmd.Append(nil))
		if err != nil || !bytes.Equal(again.Append(nil), cmd.Append(nil)) {
			t.Fatalf("%+v, %v, want %+v", again, err, cmd)
		}
	})
}
