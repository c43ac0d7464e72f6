package amqp

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/amqp/wire"
)

// The ring of unsettled deliveries does what a sorted list of tags does, in
// memory that follows what is unsettled.
func TestUnackedModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var u unacked
		var model []uint64
		last := uint64(0)
		k := &consumer{}
		for range rapid.IntRange(1, 400).Draw(t, "steps") {
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2, 3:
				for range rapid.IntRange(1, 50).Draw(t, "deliveries") {
					last++
					u.push(unackedEntry{tag: last, consumer: k, offset: int64(last) * 10})
					model = append(model, last)
				}
			case 4, 5, 6, 7:
				tag := rapid.Uint64Range(0, last+2).Draw(t, "tag")
				e, ok := u.remove(tag)
				i := slices.Index(model, tag)
				if ok != (i >= 0) || (ok && (e.tag != tag || e.offset != int64(tag)*10)) {
					t.Fatalf("remove %d: %+v %v", tag, e, ok)
				}
				if ok {
					model = slices.Delete(model, i, i+1)
				}
			default:
				tag := rapid.Uint64Range(0, last+2).Draw(t, "to tag")
				got, ok := u.removeTo(tag, nil)
				i := slices.Index(model, tag)
				if ok != (i >= 0 || tag == 0) {
					t.Fatalf("remove to %d: %v", tag, ok)
				}
				want := model[:i+1]
				if tag == 0 {
					want = model
				}
				if len(got) != len(want) {
					t.Fatalf("remove to %d: %d, want %d", tag, len(got), len(want))
				}
				for j := range got {
					if got[j].tag != want[j] {
						t.Fatalf("remove to %d: %v", tag, got)
					}
				}
				model = slices.Clone(model[len(want):])
			}
			var have []uint64
			for e := range u.all() {
				have = append(have, e.tag)
			}
			if !slices.Equal(have, model) {
				t.Fatalf("%v, want %v", have, model)
			}
			if live := len(u.entries) - u.head; live > 2*len(model)+2*squeezeFrom {
				t.Fatalf("%d entries for %d", live, len(model))
			}
		}
	})
}

// Whatever the order of completions, the client learns each outcome once, and a
// confirm with multiple covers nothing that is not done.
func TestConfirmsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConn(newServer(Config{}, newFakeNode()), nil)
		ch := &channel{c: c, id: 1}
		w := newConfirms(ch)
		truth := map[uint64]outcome{} // of what is done
		known := map[uint64]outcome{}
		var open []uint64
		last := uint64(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				for range rapid.IntRange(1, 100).Draw(t, "publishes") {
					last++
					if seq := w.begin(); seq != last {
						t.Fatalf("sequence number %d, want %d", seq, last)
					}
					open = append(open, last)
				}
			case 1:
				for range min(len(open), rapid.IntRange(0, 80).Draw(t, "completions")) {
					i := 0
					if rapid.Bool().Draw(t, "out of order") {
						i = rapid.IntRange(0, len(open)-1).Draw(t, "which")
					}
					var res kernel.Result
					truth[open[i]] = acked
					if rapid.IntRange(0, 5).Draw(t, "fails") == 0 {
						res.Err = kernel.Errorf(kernel.CodeUnknown, "", "", "unknown")
						truth[open[i]] = nacked
					}
					w.Completed(open[i], res)
					open = slices.Delete(open, i, i+1)
				}
			case 2:
				w.Flush()
				told(t, c, truth, known)
				if len(known) != len(truth) {
					t.Fatalf("%d known of %d done", len(known), len(truth))
				}
			}
		}
	})
}

// told reads what was sent as a client would.
func told(t *rapid.T, c *conn, truth, known map[uint64]outcome) {
	frames := wire.NewFrameReader(&loop{b: c.out.buf}, 4096)
	for n := len(c.out.buf); n > 0; {
		fr, err := frames.Next()
		if err != nil {
			t.Fatal(err)
		}
		n -= len(fr.Payload) + wire.FrameOverhead
		m, err := wire.ReadMethod(fr.Payload)
		if err != nil {
			t.Fatal(err)
		}
		how, tag, multiple := acked, uint64(0), false
		switch m := m.(type) {
		case *wire.BasicAck:
			tag, multiple = m.DeliveryTag, m.Multiple
		case *wire.BasicNack:
			how, tag, multiple = nacked, m.DeliveryTag, m.Multiple
		}
		first := tag
		if multiple {
			first = 1
		}
		for seq := first; seq <= tag; seq++ {
			if _, before := known[seq]; before && multiple {
				continue
			}
			if truth[seq] != how {
				t.Fatalf("%v of %d (multiple %v): told %d, it is %d", m.ID(), seq, multiple, how, truth[seq])
			}
			if _, before := known[seq]; before {
				t.Fatalf("%d told twice", seq)
			}
			known[seq] = how
		}
	}
	c.out.buf = c.out.buf[:0]
}

// Credit never exceeds the prefetch, nor what fits the buffers of a connection.
func TestCreditModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newConn(newServer(Config{}, newFakeNode()), nil)
		ch := &channel{c: c, id: 1}
		k := &consumer{ch: ch, prefetch: rapid.IntRange(0, 2000).Draw(t, "prefetch"), average: assumedBytes, started: true}
		k.noAck = rapid.Bool().Draw(t, "noAck")
		c.consuming = rapid.IntRange(1, 50).Draw(t, "consumers")
		for range 100 {
			k.grant()
			if k.credit < 0 || k.credit > maxCredit {
				t.Fatalf("credit %d", k.credit)
			}
			if !k.noAck && k.prefetch > 0 && k.credit+k.held > k.prefetch {
				t.Fatalf("credit %d and %d held, prefetch %d", k.credit, k.held, k.prefetch)
			}
			if k.credit > 1 && k.credit*k.average*c.consuming > 2*creditBytes && k.average <= assumedBytes {
				t.Fatalf("credit %d for %d bytes each, %d consumers", k.credit, k.average, c.consuming)
			}
			if k.credit == 0 && !c.out.full() && (k.noAck || k.prefetch == 0 || k.held < k.prefetch) {
				t.Fatal("it starves")
			}
			n := rapid.IntRange(0, k.credit).Draw(t, "delivered")
			k.credit -= n
			if !k.noAck {
				k.held += n
			}
			if n > 0 {
				k.measure(rapid.IntRange(1, assumedBytes).Draw(t, "size"))
				for k.credit > 0 && k.credit*k.average*c.consuming > 2*creditBytes {
					k.credit-- // granted for smaller ones; they come
				}
			}
			k.held -= rapid.IntRange(0, k.held).Draw(t, "settled")
		}
	})
}
