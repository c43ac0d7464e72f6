package forward

import (
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
)

// wills hears the wills that are published.
func wills(t testing.TB, n *network) *subscriber {
	to := newSubscriber()
	s := n.connect(t, tokened("listener")).brief("listener")
	s.Subscribe(soon(t), []broker.SubscribeSpec{spec("will/#", 1, 1, to)})
	return to
}

func (a *attached) leave(t testing.TB, name, value string) {
	t.Helper()
	w := &kernel.Will{Topic: "will/" + name, Record: kernel.Record{Key: []byte("k"), Value: []byte(value), Headers: []kernel.Header{{Key: "h"}}}}
	if err := a.SetWill(soon(t), w); err != nil {
		t.Fatal(err)
	}
}

// TestWill: a session leaves its will when its client ends without a farewell, and when
// its stream breaks and it does not come back; not when it takes its leave, goes on
// through another link, or says that it will.
func TestWill(t *testing.T) {
	n := serve(t, open(t))
	heard := wills(t, n)
	c := n.connect(t, tokened("1"))
	s := c.kept("c")
	s.leave(t, "c", "dropped")
	if err := s.DropWill(); err != nil {
		t.Fatal(err)
	}
	s.leave(t, "c", "replaced")
	s.leave(t, "c", "1")
	s.Detach(time.Hour)
	heard.waitLive(t, "will/c=1@1")

	s = c.kept("c")
	s.leave(t, "c", "2")
	s.Suspend()
	s, _ = c.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour, Epoch: s.Epoch()}, nil)
	s.leave(t, "c", "3") // as a client that goes on does
	n.near.Close()       // of c
	wantCode(t, <-c.ended, kernel.CodeUnknown)
	c = n.connect(t, tokened("1"))
	s, _ = c.attach(broker.Attaching{ClientID: "c", Expiry: time.Hour, Epoch: s.Epoch()}, nil)
	s.leave(t, "c", "4")
	n.near.Close()
	wantCode(t, <-c.ended, kernel.CodeUnknown)
	c = n.connect(t, tokened("2")) // another client
	c.kept("c")
	heard.waitLive(t, "will/c=1@1", "will/c=4@1")

	c = n.connect(t, tokened("3"))
	c.kept("left").leave(t, "left", "5")
	c.Close()
	heard.waitLive(t, "will/c=1@1", "will/c=4@1", "will/left=5@1")
}

// TestWillOfABrokenStream: nobody comes back.
func TestWillOfABrokenStream(t *testing.T) {
	t.Parallel()
	n := serve(t, open(t))
	heard := wills(t, n)
	c := n.connect(t, tokened("1"))
	c.brief("c").leave(t, "c", "gone")
	n.near.Close()
	heard.waitLive(t, "will/c=gone@1")
}

// TestWillRefused: what is wrong with a will is said.
func TestWillRefused(t *testing.T) {
	s := serve(t, open(t)).connect(t, tokened("1")).kept("c")
	wantCode(t, s.SetWill(soon(t), &kernel.Will{Topic: "a/#", Retain: true}), kernel.CodeInvalidName)
}
