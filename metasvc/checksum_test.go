package metasvc

import (
	"testing"

	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// TestChecksum: it is that of the state, whichever way a node has come to it, and another
// one after each command that changes something.
func TestChecksum(t *testing.T) {
	sums := map[uint64]bool{}
	sum := func(c *Catalog) (uint64, uint64) {
		t.Helper()
		index, sum, err := c.Checksum()
		if err != nil {
			t.Fatal(err)
		}
		return index, sum
	}
	fs := vfs.NewMem()
	c, stop := open(t, fs)
	ops := []catalog.Op{exchange(1), exchange(2), catalog.TakeProducers{Count: 5}, catalog.DropExchange{Tenant: "/", Name: "x1"}}
	for _, op := range ops {
		if _, err := c.Do(soon(t), op); err != nil {
			t.Fatal(err)
		}
		_, s := sum(c)
		sums[s] = true
	}
	if len(sums) != len(ops) {
		t.Errorf("%d checksums after %d changes", len(sums), len(ops))
	}
	index, last := sum(c)
	replayed, stopReplayed := open(t, fs.CrashClone(nil)) // from the log
	defer stopReplayed()
	stop()
	read, stopRead := open(t, fs) // from a checkpoint
	defer stopRead()
	for name, other := range map[string]*Catalog{"replayed": replayed, "read": read} {
		if i, s := sum(other); i != index || s != last {
			t.Errorf("%s: checksum %x of index %d, want %x of %d", name, s, i, last, index)
		}
	}
}
