package metasvc

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/rs/zerolog"
	"go.uber.org/goleak"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/catalog"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	"github.com/trivium-mq/trivium/storage/vfs"
	"github.com/trivium-mq/trivium/storage/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func open(t *testing.T, fs vfs.FS) (*Catalog, func()) {
	t.Helper()
	log, err := wal.Open(fs, "/wal", wal.Options{FileSize: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(Config{WAL: log, FS: fs, Dir: "/catalog", NodeID: "n1", Bootstrap: []raftgroup.Server{{ID: "n1", Address: "n1"}}, Logger: zerolog.Nop()})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.WaitReady(soon(t)); err != nil {
		t.Fatal(err)
	}
	return c, func() {
		t.Helper()
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := log.Close(); err != nil {
			t.Error(err)
		}
	}
}

func exchange(i int) catalog.PutExchange {
	return catalog.PutExchange{Exchange: kernel.Exchange{Tenant: "/", Name: fmt.Sprintf("x%d", i), Type: kernel.Direct, Durable: true}}
}

func TestCatalog(t *testing.T) {
	fs := vfs.NewMem()
	c, stop := open(t, fs)
	var wg sync.WaitGroup
	for i := range 200 {
		wg.Go(func() {
			if _, err := c.Do(soon(t), exchange(i)); err != nil {
				t.Error(err)
			}
			if _, ok := c.State().Exchange("/", fmt.Sprintf("x%d", i)); !ok {
				t.Error("Do returned before the state shows it")
			}
		})
	}
	wg.Wait()
	changed := exchange(0)
	changed.Exchange.Type = kernel.Fanout
	if _, err := c.Do(soon(t), changed); kernel.CodeOf(err) != kernel.CodeExists {
		t.Errorf("got %v", err)
	}
	stop()

	// What was answered is there after a power loss.
	c, stop = open(t, fs.CrashClone(nil))
	n := 0
	c.State().Exchanges(func(*kernel.Exchange) { n++ })
	if n != 200 {
		t.Errorf("%d of 200 exchanges", n)
	}
	stop()
	if _, err := c.Do(soon(t), exchange(1)); kernel.CodeOf(err) != kernel.CodeUnavailable {
		t.Errorf("after Close: %v", err)
	}
}

// TestCheckpoint checks that the catalog starts from a checkpoint with the log
// after it.
func TestCheckpoint(t *testing.T) {
	fs := vfs.NewMem()
	c, stop := open(t, fs)
	for i := range 10 {
		if _, err := c.Do(soon(t), exchange(i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.checkpoint(c.view.Load()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(soon(t), exchange(10), catalog.TakeProducers{Count: 5}); err != nil {
		t.Fatal(err)
	}
	before := c.State().Revision()
	stop()
	c, stop = open(t, fs)
	defer stop()
	if len(c.store.List()) != 2 { // one more when it was closed
		t.Errorf("checkpoints %v", c.store.List())
	}
	n := 0
	c.State().Exchanges(func(*kernel.Exchange) { n++ })
	if n != 11 || c.State().Revision() != before {
		t.Errorf("%d exchanges at revision %d, want 11 at %d", n, c.State().Revision(), before)
	}
	if res, err := c.Do(soon(t), catalog.TakeProducers{Count: 5}); err != nil || res.Producers != 5 {
		t.Errorf("%+v, %v", res, err)
	}
}

// TestCheckpointAtClose checks that a small catalog has a checkpoint after a clean
// stop, and that without news there is no other one.
func TestCheckpointAtClose(t *testing.T) {
	fs := vfs.NewMem()
	c, stop := open(t, fs)
	if _, err := c.Do(soon(t), exchange(1)); err != nil {
		t.Fatal(err)
	}
	stop()
	for range 2 {
		c, stop = open(t, fs)
		if n := len(c.store.List()); n != 1 {
			t.Errorf("%d checkpoints", n)
		}
		if _, ok := c.State().Exchange("/", "x1"); !ok {
			t.Error("the exchange is gone")
		}
		stop()
	}
}

// TestSmallCheckpoint: a small catalog that has changed has a checkpoint soon, without
// a clean stop; one that has not changed gets no other.
func TestSmallCheckpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, stop := open(t, vfs.NewMem())
		defer stop()
		if _, err := c.Do(t.Context(), exchange(1)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2*checkpointSoon + time.Second) // in the bubble
		list := c.store.List()
		if len(list) != 1 || list[0].Index != c.view.Load().index {
			t.Fatalf("%+v, the catalog is at %d", list, c.view.Load().index)
		}
		time.Sleep(10 * checkpointSoon)
		if again := c.store.List(); len(again) != 1 || again[0].Index != list[0].Index {
			t.Errorf("%+v", again)
		}
	})
}

// TestDueCheckpoint checks that enough commands bring one about.
func TestDueCheckpoint(t *testing.T) {
	c, stop := open(t, vfs.NewMem())
	defer stop()
	big := exchange(0)
	for i := 0; len(c.store.List()) == 0; i++ {
		if i == 1000 {
			t.Fatal("no checkpoint")
		}
		big.Exchange.Name = fmt.Sprintf("%01000d-%d", 0, i)
		ops := make([]catalog.Op, 20)
		for k := range ops {
			ops[k] = big
		}
		if _, err := c.Do(soon(t), ops...); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUnreadableEntry checks that a command of a newer version stops the
// catalog instead of being skipped.
func TestUnreadableEntry(t *testing.T) {
	c, stop := open(t, vfs.NewMem())
	defer stop()
	failed := make(chan error, 1)
	c.cfg.OnFailure = func(err error) { failed <- err }
	machine{c}.Apply([]raftgroup.Entry{{Index: 1 << 40, Data: []byte{catalog.Version + 1}}})
	select {
	case <-failed:
	case <-soon(t).Done():
		t.Fatal("OnFailure was not called")
	}
	if _, err := c.Do(soon(t), exchange(1)); err == nil {
		t.Error("a failed catalog takes commands")
	}
	if c.Ready() == nil {
		t.Error("a failed catalog is ready")
	}
}
