package placement

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/checkpoint"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestLeaderChange: a new leader has what was confirmed, hands out again what
// was in flight, marked, and not what was settled.
func TestLeaderChange(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 8 << 10})
	defer c.close()
	old := c.leader(0, 1, 2)
	g := c.nodes[old]
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	publish(t, g, g.Targets(parts...), 0, 500)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(100)
	s.wait(t, 100)
	m.Settle(kernel.Accept, 0, 0, 49)
	g.flush()
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}}))

	c.net.Isolate(c.peers[old].ID)
	a := newAnswers()
	set := g.Targets(parts...)
	must(t, g.Append(set, numbered(9999), a, 1)) // nobody else gets it
	others := []int{(old + 1) % 3, (old + 2) % 3}
	lead := c.nodes[c.leader(others...)]
	code(t, s.waitEnded(t), kernel.CodeUnavailable)
	if v, err := lead.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Fatalf("key: %q, %v", v, err)
	}
	s2 := newSink()
	m2 := join(t, lead, id, kernel.MemberOptions{}, s2)
	m2.Credit(1000)
	for i, d := range s2.wait(t, 450) {
		if d.number != uint64(50+i) || i < 50 && !d.redelivered {
			t.Fatalf("delivery %d of the new leader: %+v", i, d)
		}
	}
	publish(t, lead, lead.Targets(parts...), 500, 510)
	c.net.Rejoin(c.peers[old].ID)
	if res := a.wait(t, 1)[1]; kernel.CodeOf(res.Err) != kernel.CodeUnavailable {
		t.Fatalf("what the old leader could not commit is answered %+v", res)
	}
	p, err := g.Partition(parts[0])
	must(t, err)
	ready := make(chan struct{}, 1)
	cancel := p.Watch(509, ready) // it follows
	defer cancel()
	<-ready
	m2.Leave()
}

// TestRestore: a machine that takes a checkpoint has the state of the one that
// made it, and says so where a segment is missing.
func TestRestore(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	n.limits.SealBytes = 64 << 10
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}, {Key: []byte("gone"), Value: []byte("v")}}))
	g.sealer.ask()
	awaitCheckpoint(t, g)
	must(t, g.Put(soon(t), []KV{{Key: []byte("gone")}, {Key: []byte("l"), Value: []byte("w")}}))
	g.sealer.ask()
	var records uint64
	for g.Metrics().Checkpoints.Load() < 3 {
		publish(t, g, g.Targets(parts...), records, records+100)
		records += 100
		sealsDone(t, g)
	}
	want := g.Groups()
	n.close(g)
	store, err := checkpoint.Open(n.fs, "data/p1/checkpoints")
	must(t, err)

	other := newNode(t, vfs.NewMem(), "data")
	f := other.open()
	defer other.close(f)
	oldParts, oldID := queue(t, f, 9, 1, kernel.RetainDay)
	s := newSink()
	m := join(t, f, oldID, kernel.MemberOptions{}, s)
	old, err := f.Partition(oldParts[0])
	must(t, err)
	must(t, f.Put(soon(t), []KV{{Key: []byte("other"), Value: []byte("x")}}))
	from := newKeyed(&Config{ID: 1, FS: n.fs, Dir: "data/p1"})
	store.Attach(func(m checkpoint.Meta, payload io.Reader) ([]string, error) {
		names, _, err := from.attached(m, payload)
		return names, err
	})
	meta, r, err := store.Export(store.List()[0].ID()) // as it is sent
	must(t, err)
	must(t, f.machine.Restore(meta, r))
	must(t, r.Close())
	sameKeys(t, f, map[string]string{"k": "v", "l": "w"})
	code(t, s.waitEnded(t), kernel.CodeUnavailable) // which is not to say that it was deleted
	m.Leave()
	_, err = old.Read(0, 1, nil)
	code(t, err, kernel.CodeUnavailable)
	if got := f.Groups(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("groups %+v, want %+v", got, want)
	}
	p, err := f.Partition(parts[0])
	must(t, err)
	if _, end := p.Bounds(); end == 0 {
		t.Fatal("the partition is empty")
	}
	_, err = p.Read(0, 1, nil)
	code(t, err, kernel.CodeUnavailable) // the segment has not come yet
	if ready, _, _, _, _ := f.Stats(id); ready == 0 {
		t.Fatal("nothing is ready")
	}
	if err := f.machine.Restore(meta, &bad{}); err == nil {
		t.Fatal("nonsense was restored")
	}
}

type bad struct{}

func (*bad) Read([]byte) (int, error) { return 0, errors.New("bad") }
