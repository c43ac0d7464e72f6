package broker

import (
	"fmt"
	"slices"
	"testing"

	"github.com/trivium-mq/trivium/kernel"
)

// TestRewind: a group goes on from where it is put, its members stay, and it is
// there after a restart.
func TestRewind(t *testing.T) {
	dir := t.TempDir()
	b := open(t, dir)
	c := connect(t, b)
	spec := QueueSpec{Name: "q", Durable: true, Type: kernel.Quorum}
	declare(t, c, spec)
	p := publisher(t, c)
	for i := range 10 {
		p.exchange("", "q", fmt.Sprint(i))
	}
	m, in := consume(t, c, "q", kernel.MemberOptions{}, 100)
	in.wait(t, 10)
	m.Settle(kernel.Accept, 0, 0, 4) // the others are held
	move := func(c *Conn, kind kernel.PositionKind, value int64) {
		t.Helper()
		if err := c.RewindGroup(soon(t), "q", kernel.Position{Kind: kind, Value: value}); err != nil {
			t.Fatal(err)
		}
	}
	move(c, kernel.AtOffset, 3)
	m.Credit(100)
	if got := in.wait(t, 17)[10:]; !slices.Equal(got, []string{"3", "4", "5", "6", "7", "8", "9"}) {
		t.Fatalf("after a rewind: %q", got)
	}
	m.Leave()
	move(c, kernel.AtEnd, 0)
	if info := declare(t, c, spec); info.Ready != 0 {
		t.Fatalf("at the end: %+v", info)
	}
	move(c, kernel.AtStart, 0)
	shut(t, b)
	b = open(t, dir)
	c = connect(t, b)
	if info := declare(t, c, spec); info.Ready != 10 {
		t.Fatalf("after a restart: %+v", info)
	}
	move(c, kernel.AtTime, 0) // no record is older
	if info := declare(t, c, spec); info.Ready != 10 {
		t.Fatalf("by an old time: %+v", info)
	}
	move(c, kernel.AtTime, 1<<52)
	if info := declare(t, c, spec); info.Ready != 0 {
		t.Fatalf("by a time to come: %+v", info)
	}
	wantCode(t, c.RewindGroup(soon(t), "none", kernel.Position{Kind: kernel.AtStart}), kernel.CodeNotFound)
	wantCode(t, c.RewindGroup(soon(t), "q", kernel.Position{}), kernel.CodeInvalid)
}
