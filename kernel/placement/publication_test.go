package placement

import (
	"strconv"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// appends are the ways in which one record is appended.
var appends = []struct {
	name string
	once bool
	with func(*Group, *TargetSet, *kernel.Record, kernel.Completion, uint64) error
}{
	{"plain", false, (*Group).Append},
	{"once", true, func(g *Group, set *TargetSet, r *kernel.Record, done kernel.Completion, token uint64) error {
		return g.AppendOnce(set, r, kernel.Once{Session: "s", Number: uint16(token), Count: token + 1}, done, token)
	}},
	{"keyed", false, func(g *Group, set *TargetSet, r *kernel.Record, done kernel.Completion, token uint64) error {
		return g.AppendKeyed(set, r, []KV{{Key: []byte("k"), Value: []byte{byte(token)}}}, kernel.Once{}, done, token)
	}},
	{"keyed once", true, func(g *Group, set *TargetSet, r *kernel.Record, done kernel.Completion, token uint64) error {
		once := kernel.Once{Session: "s", Number: uint16(token), Count: token + 1}
		return g.AppendKeyed(set, r, []KV{{Key: []byte("k"), Value: []byte{byte(token)}}}, once, done, token)
	}},
}

// TestEveryAppendMeetsFullQueues: however a record is published a full queue
// rejects it, and makes its dead letter; other queues get it, unless it is to be
// stored once: that happens everywhere or nowhere.
func TestEveryAppendMeetsFullQueues(t *testing.T) {
	for _, way := range appends {
		t.Run(way.name, func(t *testing.T) {
			n, dead := newNode(t, vfs.NewMem(), "data"), &cemetery{}
			n.bury = dead.bury
			g := n.open()
			defer func() { n.close(g) }()
			full, _ := limitedQueue(t, g, 1, limited(func(l *kernel.Limits) {
				l.MaxLength, l.Overflow, l.DeadLetter = 2, kernel.RejectPublishDeadLetter, true
			}))
			others, other := queue(t, g, 2, 1, kernel.RetainDay)
			set := g.Targets(full, others[0])
			for i := range uint64(3) {
				a := newAnswers()
				err := way.with(g, set, numbered(i), a, i)
				if err == nil {
					err = a.wait(t, 1)[i].Err
				} else if !way.once || !IsQueueFull(err) {
					t.Fatalf("publish %d is refused with %v", i, err)
				}
				if (err == nil) != (i < 2) || err != nil && !IsQueueFull(err) {
					t.Fatalf("publish %d: %v", i, err)
				}
			}
			dead.wait(t, "2 maxlen")
			want := int64(3)
			if way.once {
				want = 2
			}
			readySoon(t, g, other, want)
			if way.name == "plain" || way.name == "once" {
				return
			}
			if v, err := g.Get([]byte("k")); err != nil || int64(v[0]) != want-1 {
				t.Fatalf("the key has %v, %v", v, err)
			}
		})
	}
}

// TestEveryAppendExpires: however a record with a time of its own is published it
// leaves a queue that nobody reads when that is over.
func TestEveryAppendExpires(t *testing.T) {
	for _, way := range appends {
		t.Run(way.name, func(t *testing.T) {
			n := newNode(t, vfs.NewMem(), "data")
			g := n.open()
			defer func() { n.close(g) }()
			parts, id := queue(t, g, 1, 1, kernel.RetainDay)
			r, a := numbered(1), newAnswers()
			at := time.Now().Add(100 * time.Millisecond).UnixMilli()
			r.Headers = []kernel.Header{{Key: kernel.HeaderExpiresAt, Value: strconv.AppendInt(nil, at, 10)}}
			must(t, way.with(g, g.Targets(parts...), r, a, 1))
			if res := a.wait(t, 1)[1]; res.Err != nil {
				t.Fatal(res.Err)
			}
			readySoon(t, g, id, 0)
			if n := g.Metrics().Expired.Load(); n != 1 {
				t.Fatalf("%d expired", n)
			}
		})
	}
}
