package placement

import (
	"testing"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestUnreadableEntry: a machine that cannot follow its log stops there, and
// whoever waits for that entry learns that its outcome is unknown, once.
func TestUnreadableEntry(t *testing.T) {
	g := newStepped(t)
	part := g.topic(t, 1)[0]
	failures := 0
	g.machine.fail = func(error) { failures++ }
	done := newAnswers()
	for token := range uint64(2) {
		must(t, g.Append(g.Targets(part), numbered(token), done, token))
		n := len(g.log.entries)
		if token == 1 {
			g.log.entries[n-1].data = append(g.log.entries[n-1].data, 99) // no such section
		}
		g.commit(n-1, 1)
	}
	g.machine.Apply([]raftgroup.Entry{{Index: 9, Term: 1, Data: []byte{0}}})
	g.step()
	got := done.wait(t, 2)
	if got[0].Err != nil || kernel.CodeOf(got[1].Err) != kernel.CodeUnknown {
		t.Errorf("%+v", got)
	}
	if failures != 1 {
		t.Errorf("%d failures", failures)
	}
}

// TestKeyedWriteFails: after keyed state could not be written there is no
// checkpoint, which would take it for written.
func TestKeyedWriteFails(t *testing.T) {
	n := newNode(t, vfs.NewMem(), "data")
	g := n.open()
	defer n.close(g)
	must(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: []byte("1")}}))
	_, err := g.keyed.save(1)
	must(t, err)
	code(t, g.Put(soon(t), []KV{{Key: []byte("k"), Value: make([]byte, 2<<20)}}), kernel.CodeUnknown) // more than the store takes
	if _, err := g.keyed.save(2); err == nil {
		t.Error("a checkpoint could be made")
	}
	if err := g.keyed.write([]keyedWrite{{index: 1 << 40}}); err == nil {
		t.Error("it goes on writing")
	}
}
