package placement

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// consume takes n records off a group and settles them.
func consume(t *testing.T, g *Group, id GroupID, n int) {
	t.Helper()
	s := newSink()
	m := join(t, g, id, kernel.MemberOptions{AutoSettle: true}, s)
	m.Credit(n)
	s.wait(t, n)
	m.Leave()
}

// offer publishes like publish, until the disk is low, and returns the next number.
func offer(t *testing.T, g *Group, set *TargetSet, from, to uint64) uint64 {
	t.Helper()
	a, next := newAnswers(), from
	for ; next < to; next++ {
		if err := g.Append(set, numbered(next), a, next); err != nil {
			code(t, err, kernel.CodePressure)
			break
		}
	}
	if next > from {
		a.wait(t, int(next-from))
	}
	return next
}

// publishPatiently publishes like publish, and waits while the disk is low.
func publishPatiently(t *testing.T, g *Group, set *TargetSet, from, to uint64) {
	t.Helper()
	for ctx := soon(t); from < to; {
		from = offer(t, g, set, from, to)
		must(t, ctx.Err())
	}
}

// TestSealIsRetaken: a seal that finds no room on the disk is not tried for ever
// with what it once captured. When consumers have settled everything, the next
// one needs no room; publishing goes on, also after a restart.
func TestSealIsRetaken(t *testing.T) {
	fs := vfs.NewFault(vfs.NewMem(), vfs.Rule{Op: vfs.OpWrite, Name: "*.seg.tmp", Err: vfs.ErrNoSpace})
	n := newNode(t, fs, "data")
	n.limits.SealBytes = 8 << 10
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	count := uint64(0)
	for full := false; !full; {
		next := offer(t, g, g.Targets(parts...), count, count+10)
		count, full = next, next < count+10 // it is refused since the seal has failed
	}
	consume(t, g, id, int(count))
	awaitCheckpoint(t, g) // while a segment still could not be written
	fs.Clear()
	publishPatiently(t, g, g.Targets(parts...), count, count+10)
	n.close(g)

	g = n.open()
	defer n.close(g)
	publish(t, g, g.Targets(parts...), count+10, count+20)
	if ready, _, _ := g.Count(id); ready != 20 {
		t.Errorf("%d records are ready, want 20", ready)
	}
	consume(t, g, id, 20)
}

// TestSealFindsRoom: a seal that was given up comes again when there is room, with
// all that is still needed.
func TestSealFindsRoom(t *testing.T) {
	fs := vfs.NewFault(vfs.NewMem(), vfs.Rule{Op: vfs.OpWrite, Name: "*.seg.tmp", Times: 2, Err: vfs.ErrNoSpace})
	n := newNode(t, fs, "data")
	n.limits.SealBytes = 8 << 10
	g := n.open()
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	for i := uint64(0); i < 2000; i += 10 {
		publishPatiently(t, g, g.Targets(parts...), i, i+10)
	}
	awaitCheckpoint(t, g)
	n.close(g)

	g = n.open()
	defer n.close(g)
	consume(t, g, id, 2000)
}

const floor = 1 << 20

// lowNode is a node on a disk that has room, and a floor that tests can reach.
func lowNode(t *testing.T) (*node, *vfs.MemFS) {
	fs := vfs.NewMem()
	fs.SetFree(256 << 20)
	n := newNode(t, fs, "data")
	n.limits.SealBytes, n.limits.DiskFloor = 8<<10, floor
	return n, fs
}

// TestLowDisk: publishers and what makes new things are refused before the disk
// is full; what frees space goes on; it ends by itself.
func TestLowDisk(t *testing.T) {
	n, fs := lowNode(t)
	g := n.open()
	defer func() { n.close(g) }()
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	other, _ := queue(t, g, 2, 1, kernel.RetainUsed)
	publish(t, g, g.Targets(parts[0], other[0]), 0, 20)

	fs.SetFree(floor - 1)
	g.tick()
	refused := func() {
		t.Helper()
		code(t, g.Append(g.Targets(parts...), numbered(1), nil, 0), kernel.CodePressure)
		_, err := g.CreatePartitions(soon(t), topicN(3), []PartitionSpec{{}}, 1)
		code(t, err, kernel.CodePressure)
		_, err = g.CreateGroup(soon(t), GroupSpec{Topic: topicN(1), Address: kernel.QueueAddress("/", "new")}, 1)
		code(t, err, kernel.CodePressure)
	}
	refused()
	queue(t, g, 1, 1, kernel.RetainUsed) // is there
	consume(t, g, id, 10)
	if purged, err := g.Purge(soon(t), id); purged != 10 || err != nil {
		t.Errorf("purged %d: %v", purged, err)
	}
	must(t, g.DropTopic(soon(t), topicN(2), 1))
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("v")}}))

	fs.SetFree(floor) // not yet: it would be low again with the next file
	g.tick()
	refused()
	fs.SetFree(2 * floor)
	g.tick()
	publish(t, g, g.Targets(parts...), 0, 10)
	queue(t, g, 3, 1, kernel.RetainUsed)

	fs.SetFree(floor - 1)
	n.close(g)
	fs.SetFree(floor + floor/16)
	n.limits.DiskFloor = 2 * floor
	g = n.open()
	code(t, g.Append(g.Targets(parts...), numbered(1), nil, 0), kernel.CodePressure) // from the start
	consume(t, g, id, 10)
}

// smallVolume is a disk of a given size.
type smallVolume struct {
	vfs.FS
	size int64
}

func (v smallVolume) Capacity(string) (int64, error) { return v.size, nil }

// TestFloorOfSmallDisk: on a small volume the floor is a quarter of it.
func TestFloorOfSmallDisk(t *testing.T) {
	n, fs := lowNode(t)
	n.fs = smallVolume{fs, 2 * floor}
	g := n.open()
	defer n.close(g)
	parts, _ := queue(t, g, 1, 1, kernel.RetainUsed)
	fs.SetFree(floor - 1)
	g.tick()
	publish(t, g, g.Targets(parts...), 0, 10)
	fs.SetFree(floor/2 - 1)
	g.tick()
	code(t, g.Append(g.Targets(parts...), numbered(1), nil, 0), kernel.CodePressure)
}

// TestLowDiskIsFreed: while the disk is low, what has been settled leaves it,
// although nothing is published that would make a seal due.
func TestLowDiskIsFreed(t *testing.T) {
	n, fs := lowNode(t)
	g := n.open()
	defer n.close(g)
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	count := sealed(t, g, g.Targets(parts...), 3)
	fs.SetFree(floor - 1)
	consume(t, g, id, int(count))
	for try := 0; ; try++ {
		g.tick()
		must(t, g.Put(soon(t), []KV{{Key: []byte("k")}})) // behind what the tick has asked for
		names, err := fs.List("data/p1/segments")
		must(t, err)
		if len(names) == 0 {
			return
		}
		if try == 1<<14 {
			t.Fatalf("segments stay: %v", names)
		}
	}
}

// TestDiskIsLookedAt: a burst is noticed before the next second.
func TestDiskIsLookedAt(t *testing.T) {
	var d disk
	looks := 0
	d.wrote(1 << 30) // no disk, nothing to look at
	d.floor, d.seen = 100, 0
	d.free = func() (int64, error) { looks++; return 0, nil }
	for bytes := uint64(0); bytes <= 4*lookBytes; bytes += lookBytes / 4 {
		d.wrote(bytes)
	}
	if looks != 4 || !d.low.Load() {
		t.Errorf("looked %d times, low: %v", looks, d.low.Load())
	}
}

// TestNoRoomForTheLog: publishes are refused as soon as the next file of the log
// cannot be made, although the disk is said to have room, as with a quota; what was
// published is handed out and settled in the rest of the present one, and it ends by
// itself.
func TestNoRoomForTheLog(t *testing.T) {
	fs := vfs.NewFault(vfs.NewMem(), vfs.Rule{Op: vfs.OpPreallocate, Name: "*.wal", After: 1, Err: vfs.ErrNoSpace})
	n := newNode(t, fs, "data")
	told := make(chan bool, 10)
	n.onDisk = func(low bool, _, _ int64) { told <- low }
	g := n.open()
	defer n.close(g)
	parts, id := queue(t, g, 1, 1, kernel.RetainUsed)
	set, a, count := g.Targets(parts...), newAnswers(), uint64(0)
	for {
		err := g.Append(set, &kernel.Record{Value: make([]byte, 64<<10)}, a, count)
		if err != nil {
			code(t, err, kernel.CodePressure)
			break
		}
		count++
		a.wait(t, int(count))
	}
	if low := <-told; !low {
		t.Error("told that there is room")
	}
	consume(t, g, id, int(count))
	fs.Clear()
	eventually(t, g, "room", func() bool { return !g.disk.low.Load() })
	if low := <-told; low {
		t.Error("told that there is no room")
	}
	publish(t, g, set, count, count+10)
	consume(t, g, id, 10)
}

// TestLowDiskOfAFollower: only the node that leads refuses publishes, and says so; one that
// is low already says it when it leads.
func TestLowDiskOfAFollower(t *testing.T) {
	fs, leads := vfs.NewMem(), false
	fs.SetFree(1 << 20)
	var out bytes.Buffer
	d := &disk{leads: func() bool { return leads }}
	d.open(Config{FS: fs, Logger: zerolog.New(&out)}, 2<<20)
	if text := out.String(); !strings.Contains(text, `"level":"warn"`) || !strings.Contains(text, "would refuse publishes if it led") {
		t.Errorf("a follower: %s", text)
	}
	out.Reset()
	leads = true
	d.led()
	if text := out.String(); !strings.Contains(text, `"level":"error"`) || !strings.Contains(text, "the disk is low: publishes are refused") {
		t.Errorf("the leader: %s", text)
	}
	out.Reset()
	fs.SetFree(1 << 30)
	d.look()
	d.led()
	if text := out.String(); !strings.Contains(text, "has room again") || strings.Contains(text, "refused") {
		t.Errorf("with room: %s", text)
	}
}
