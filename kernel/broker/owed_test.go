package broker

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/session"
	"github.com/trivium-mq/trivium/storage/vfs"
)

// hold has the broker take no publishes until what it returns is called.
func (w *wills) hold() (proceed func()) {
	over := make(chan struct{})
	w.b.Gather(patience, func(ctx context.Context) {
		select {
		case <-over:
		case <-ctx.Done():
		}
	})
	return func() { close(over) }
}

// records counts the wills that are written down.
func (w *wills) records() (n int) {
	err := w.b.durable.Iterate(session.WillPrefix(), func(_, _ []byte) error {
		n++
		return nil
	})
	if err != nil {
		w.t.Error(err)
	}
	return n
}

// TestOwedWillOutlastsWhoComesNext: a will that cannot be published for now, as its client
// has died, is published later though another connection has the session by then, with a
// will of its own or without, and begins it anew or not.
func TestOwedWillOutlastsWhoComesNext(t *testing.T) {
	for name, next := range map[string]func(w *wills){
		"without a will": func(w *wills) { w.client("c", false, time.Hour, 0, "") },
		"with one":       func(w *wills) { w.client("c", false, time.Hour, 0, "2") },
		"anew":           func(w *wills) { w.client("c", true, time.Hour, 0, "2") },
		"with farewell": func(w *wills) {
			s, _ := w.client("c", false, time.Hour, 0, "2")
			if err := s.DropWill(); err != nil {
				w.t.Error(err)
			}
			s.Detach(time.Hour)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWills(t, open(t, t.TempDir()), nil)
			proceed := w.hold()
			s, _ := w.client("c", true, time.Hour, 0, "1")
			s.Detach(time.Hour)
			next(w)
			proceed()
			w.want("will/c=1")
			own := name == "with one" || name == "anew"
			if w.stored("c") != own {
				t.Errorf("a will of who came next is written down: %v", !own)
			}
			if n := w.records(); n > 1 || n > 0 != own {
				t.Errorf("%d wills are written down", n)
			}
		})
	}
}

// TestOwedWillOutlivesTheNode: so is one of a node that loses power, once.
func TestOwedWillOutlivesTheNode(t *testing.T) {
	fs := vfs.NewMem()
	start := func(fs vfs.FS) *Broker { return open(t, "data", func(c *Config) { c.FS = fs }) }
	w := newWills(t, start(fs), nil)
	keep, _ := attach(t, connect(t, w.b), "keeper", true, time.Hour)
	subscribe(t, keep, "will/#", 1)
	proceed := w.hold()
	defer proceed()
	for _, value := range []string{"1", "2", "3"} { // the third is there when the power goes
		w.client("c", false, time.Hour, 0, value)
	}
	crashed := fs.CrashClone(nil)
	for range 2 {
		b := start(crashed)
		in := newInbox()
		keep, _ = attach(t, connect(t, b), "keeper", false, time.Hour)
		a, err := keep.Attach(soon(t), kernel.Subscription{Filter: "will/#", QoS: 1}, 0, in, in)
		if err != nil {
			t.Fatal(err)
		}
		a.Member.Credit(100)
		got := in.wait(t, 3)
		slices.Sort(got)
		if !slices.Equal(got, []string{"1", "2", "3"}) {
			t.Errorf("got %q", got)
		}
		shut(t, b)
	}
}
