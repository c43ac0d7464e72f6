package placement

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// lag stops a follower, has the leader seal and cut its log until that one needs a
// checkpoint, and returns which nodes are what.
func (c *cluster) lag(parts []PartitionID, records uint64) (lead, away, other int) {
	c.t.Helper()
	lead = c.leader()
	away, other = (lead+1)%3, (lead+2)%3
	c.stop(away)
	g := c.nodes[lead]
	for made := g.Metrics().Checkpoints.Load(); g.Metrics().Checkpoints.Load() < made+4; records += 50 {
		publish(c.t, g, g.Targets(parts...), records, records+50)
		sealsDone(c.t, g)
	}
	return lead, away, other
}

// TestLaggingReplica: a replica that was away for long gets a checkpoint, answers that
// records are not there yet, pulls the segments although each answer breaks off, and
// has in the end what the others have.
func TestLaggingReplica(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 16 << 10})
	defer c.close()
	g := c.nodes[c.leader()]
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}}))
	publish(t, g, g.Targets(parts...), 0, 100)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(60)
	s.wait(t, 60)
	m.Settle(kernel.Accept, 0, 0, 39)
	m.Leave()

	c.source.set(func() { c.source.block = true })
	lead, away, other := c.lag(parts, 100)
	c.start(away)
	late := c.nodes[away]
	c.waitApplied(lead, other)
	waitFor(t, "a checkpoint", func() bool { return late.machine.shown.Load().OldestNeededIndex() > 1 && !late.Whole() })
	p, err := late.Partition(parts[0])
	must(t, err)
	_, err = p.Read(0, 1, nil)
	code(t, err, kernel.CodeUnavailable)
	missing := late.machine.shown.Load().Missing()
	if _, _, err := late.OpenSegment(missing[0].ID); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("a segment that is missing can be sent: %v", err)
	}
	if !c.nodes[lead].sent.any() && !c.nodes[other].sent.any() {
		t.Fatal("nobody keeps what was sent")
	}
	if !late.puller.urgent.Load() {
		t.Fatal("a reader waits, and nobody hurries")
	}

	c.source.set(func() { c.source.block, c.source.cut = false, 5000 })
	c.sameState(lead, away, other)
	resumed := 0
	c.source.set(func() {
		for _, from := range c.source.from {
			if from > 0 {
				resumed++
			}
		}
	})
	if n := late.Metrics().Pulled.Load(); resumed == 0 || n < uint64(len(missing)) {
		t.Fatalf("%d of %d segments have come, %d answers went on where one was broken off", n, len(missing), resumed)
	}
	if v, err := late.Get([]byte("k")); err != nil || string(v) != "v" {
		t.Fatalf("key: %q, %v", v, err)
	}
	p, err = late.Partition(parts[0]) // another checkpoint may have come meanwhile
	must(t, err)
	_, err = p.Read(0, 1, nil)
	must(t, err)
}

// TestIncompleteReplicaHandsOver: a replica that is elected while it lacks segments
// has another one lead. Where there is none, it leads, and says which records have to
// wait.
func TestIncompleteReplicaHandsOver(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 16 << 10})
	defer c.close()
	g := c.nodes[c.leader()]
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	c.source.set(func() { c.source.block = true })
	lead, away, other := c.lag(parts, 0)
	c.start(away)
	late := c.nodes[away]
	waitFor(t, "a checkpoint", func() bool { return !late.Whole() })
	c.waitApplied(lead, away)
	must(t, c.nodes[lead].Raft().TransferLeadershipTo(soon(t), c.peers[away].ID))
	next := c.leader(lead, other)
	if late.Ready() == nil {
		t.Fatal("the replica that lacks segments serves")
	}

	// Nobody else can lead: the others are told not to be whole.
	c.source.set(func() { c.source.none = true })
	c.waitApplied(next, away)
	c.pass(away)
	s := newSink()
	m := join(t, late, id, kernel.MemberOptions{}, s)
	m.Credit(1000)
	waitFor(t, "haste", late.puller.urgent.Load)
	if _, _, _ = late.Count(id); len(s.list) > 0 || late.Metrics().Lost.Load() > 0 {
		t.Fatalf("%d delivered, %d lost", len(s.list), late.Metrics().Lost.Load())
	}
	c.source.set(func() { c.source.block = false })
	for i, d := range s.wait(t, 150) {
		if d.number != uint64(i) {
			t.Fatalf("delivery %d is %d", i, d.number)
		}
	}
	m.Leave()
}

// damage flips bytes in the middle of a replica's segment.
func (c *cluster) damage(i int, id uint64) {
	c.t.Helper()
	f, err := c.disks[i].OpenFile("data/" + c.peers[i].ID + "/segments/" + slog.SegmentName(id))
	must(c.t, err)
	_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, 64), 300) // more than what no checksum covers
	must(c.t, errors.Join(err, f.Close()))
}

// unread returns the first offset that cannot be read, and why.
func unread(p *Partition) (at int64, err error) {
	for _, end := p.Bounds(); at < end; at++ {
		if _, err := p.Read(at, 1, nil); err != nil {
			return at, err
		}
	}
	return at, nil
}

// TestDamagedSegmentIsRefetched: damage that a consumer, a reader or the scrub meets
// is mended from another replica, and loses nothing.
func TestDamagedSegmentIsRefetched(t *testing.T) {
	c := newCluster(t, Limits{SealBytes: 16 << 10})
	defer c.close()
	lead := c.leader()
	g := c.nodes[lead]
	parts, id := queue(t, g, 1, 1, kernel.RetainDay)
	records := uint64(0)
	for g.Metrics().Checkpoints.Load() < 4 {
		publish(t, g, g.Targets(parts...), records, records+50)
		records += 50
		sealsDone(t, g)
	}
	c.waitApplied(lead, (lead+1)%3, (lead+2)%3)
	var had [3]uint64 // they may have lagged
	for i, n := range c.nodes {
		waitFor(t, "segments", func() bool { return len(n.machine.shown.Load().Segments()) >= 3 && n.Whole() })
		had[i] = n.Metrics().Pulled.Load()
	}
	segments := g.machine.shown.Load().Segments()
	c.damage(lead, segments[0].ID)
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{}, s)
	m.Credit(100)
	for i, d := range s.wait(t, 100) {
		if d.number != uint64(i) {
			t.Fatalf("delivery %d is %d", i, d.number)
		}
	}
	if g.Metrics().Lost.Load() > 0 || g.Metrics().Pulled.Load() != had[lead]+1 {
		t.Fatalf("%d lost, %d pulled", g.Metrics().Lost.Load(), g.Metrics().Pulled.Load())
	}

	follower := (lead + 1) % 3
	f := c.nodes[follower]
	c.damage(follower, segments[1].ID)
	scrub := newScrubber(f, f.drivers.sleep)
	scrub.rate = 1 << 30
	must(t, scrub.pass())
	waitFor(t, "the segment", func() bool { return f.Metrics().Pulled.Load() == had[follower]+1 })

	c.damage(follower, segments[2].ID)
	p, err := f.Partition(parts[0])
	must(t, err)
	at, err := unread(p)
	code(t, err, kernel.CodeUnavailable)
	waitFor(t, "the segment", func() bool { return f.Metrics().Pulled.Load() == had[follower]+2 })
	_, err = p.Read(at, 1, nil)
	must(t, err)

	// What nobody has whole is lost, and said to be.
	third := c.nodes[(lead+2)%3]
	for i := range c.nodes {
		c.damage(i, segments[0].ID)
	}
	c.source.set(func() { c.source.nowhere = true })
	q, err := third.Partition(parts[0])
	must(t, err)
	at, err = unread(q)
	code(t, err, kernel.CodeUnavailable)
	waitFor(t, "the news that it is lost", func() bool {
		_, err := q.Read(at, 1, nil)
		return kernel.CodeOf(err) == kernel.CodeCorrupt
	})
	if d, ok := q.Damaged(at); !ok || !d.Alone || !d.Wrong {
		t.Fatalf("%+v, %v", d, ok)
	}
	m.Leave()
}

// TestGoneSegments: a replica that lacks segments which nobody has any more, as nothing
// lives in them and whoever sent the checkpoint has forgotten, takes the checkpoint of
// another one instead.
func TestGoneSegments(t *testing.T) {
	for range 5 {
		if goneSegments(t) {
			return
		}
		t.Log("the replica was told in time that it needs them no more")
	}
	t.Fatal("no checkpoint was taken: the test tests nothing")
}

// goneSegments reports whether the replica had to take a checkpoint: on a busy machine it
// may apply what lets the segments go just before it asks for them.
func goneSegments(t *testing.T) bool {
	c := newCluster(t, Limits{SealBytes: 16 << 10})
	defer c.close()
	g := c.nodes[c.leader()]
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	c.source.set(func() { c.source.block = true })
	lead, away, other := c.lag(parts, 0)
	c.start(away)
	late := c.nodes[away]
	waitFor(t, "a checkpoint", func() bool { return !late.Whole() })
	missing := late.machine.shown.Load().Missing()

	g = c.nodes[lead]
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{AutoSettle: true}, s)
	m.Credit(1 << 20)
	p, err := g.Partition(parts[0])
	must(t, err)
	records := uint64(1 << 32)
	gone := func() bool {
		publish(t, g, g.Targets(parts...), records, records+50)
		records += 50
		for _, i := range []int{lead, other} {
			c.nodes[i].sent.expire(1 << 62)
			for _, lost := range missing {
				if f, _, err := c.nodes[i].OpenSegment(lost.ID); err == nil {
					must(t, f.Close())
					return false
				}
			}
		}
		return true
	}
	waitFor(t, "the segments to go", gone)
	if start, _ := p.Bounds(); start == 0 || late.Whole() {
		t.Fatal("nothing has gone")
	}
	c.source.set(func() { c.source.block = false })
	c.sameState(lead, away, other)
	if late.Metrics().Rebased.Load() == 0 {
		return false
	}
	c.pass(away)
	publish(t, late, late.Targets(parts...), 1<<40, 1<<40+20)
	c.sameState(away, lead, other)
	return true
}
