package forward

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/kernel"
)

// TestCut: when the stream breaks each publish has one outcome, unknown at worst, what is
// asked fails, and the end is told once, after that.
func TestCut(t *testing.T) {
	for round := range 20 {
		b := open(t)
		n := serve(t, b)
		c := n.connect(t)
		c.declare("q")
		p := publishing(t, c)
		cut := n.near
		var work sync.WaitGroup
		work.Go(func() {
			timer := time.NewTimer(time.Duration(rand.N(20_000)) * time.Microsecond)
			<-timer.C
			cut.Close()
		})
		accepted := 0
		for i := uint64(1); ; i++ {
			opt := kernel.PublishOptions{Mandatory: i%50 == 0}
			_, err := p.p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, opt, i)
			if err == nil {
				accepted++
				continue
			}
			if kernel.CodeOf(err) != kernel.CodeUnavailable && !(opt.Mandatory && kernel.CodeOf(err) == kernel.CodeUnknown) {
				t.Fatal(err)
			}
			break
		}
		wantCode(t, <-c.ended, kernel.CodeUnknown)
		for token, err := range p.done.wait(t, accepted) {
			if err != nil && kernel.CodeOf(err) != kernel.CodeUnknown {
				t.Errorf("round %d: %d: %v", round, token, err)
			}
		}
		if err := p.p.Settle(soon(t)); err != nil {
			t.Error(err)
		}
		_, err := c.Queue("q")
		wantCode(t, err, kernel.CodeUnavailable)
		c.Close()
		work.Wait()
		eventually(t, "the broker knows", func() bool { return len(b.Connections()) == 0 })
	}
}

// TestCutCalls: a call whose outcome is not known says so.
func TestCutCalls(t *testing.T) {
	n := serve(t, open(t))
	c := n.connect(t)
	var cut atomic.Bool
	var work sync.WaitGroup
	for i := range 50 {
		work.Go(func() {
			for {
				err := c.DeclareExchange(context.Background(), kernel.Exchange{Name: fmt.Sprint("x", i), Type: kernel.Direct})
				if code := kernel.CodeOf(err); err != nil {
					if code != kernel.CodeUnknown && code != kernel.CodeUnavailable || !cut.Load() {
						t.Error(err)
					}
					return
				}
			}
		})
	}
	cut.Store(true)
	n.near.Close()
	work.Wait()
	wantCode(t, <-c.ended, kernel.CodeUnknown)
}

// TestBrokerStops: when the broker closes, the client's node is told, and once it has
// left everything that was published has a certain outcome.
func TestBrokerStops(t *testing.T) {
	b := open(t)
	c := serve(t, b).connect(t)
	c.declare("q")
	p := publishing(t, c)
	var closing sync.WaitGroup
	accepted := 0
	for i := uint64(1); ; i++ {
		if i == 500 {
			closing.Go(func() {
				if err := b.Close(soon(t)); err != nil {
					t.Error(err)
				}
			})
		}
		if _, err := p.p.ToExchange("", "q", &kernel.Record{Value: []byte("v")}, kernel.PublishOptions{}, i); err != nil {
			wantCode(t, err, kernel.CodeUnavailable)
			break
		}
		accepted++
	}
	wantCode(t, <-c.ended, kernel.CodeUnavailable)
	if err := p.p.Settle(soon(t)); err != nil {
		t.Error(err)
	}
	c.Close()
	for token, err := range p.done.wait(t, accepted) {
		if err != nil {
			t.Errorf("%d: %v", token, err)
		}
	}
	closing.Wait()
}

// TestOperatorCloses: any other reason of the end comes as it is, and nothing is lost.
func TestOperatorCloses(t *testing.T) {
	b := open(t)
	c := serve(t, b).connect(t)
	c.declare("q")
	p := publishing(t, c)
	for range 100 {
		p.to("", "q", "v")
	}
	if err := b.CloseConnection(b.Connections()[0].ID, "because"); err != nil {
		t.Fatal(err)
	}
	err := <-c.ended
	wantCode(t, err, kernel.CodeNotAllowed)
	if err.Error() != "because" {
		t.Error(err)
	}
	c.Close()
	p.settle()
	eventually(t, "the connection has gone", func() bool { return len(b.Connections()) == 0 })
}

// TestGarbage: a client's node that sends what means nothing has its stream ended.
func TestGarbage(t *testing.T) {
	b := open(t)
	n := serve(t, b)
	var spoilt atomic.Bool
	n.spoil = func(m []byte) []byte {
		if spoilt.Load() {
			m[len(m)/2] ^= 0xff
			m = append(m, 1, 0, 0, 0, 250)
		}
		return m
	}
	c := n.connect(t)
	c.declare("q")
	p := publishing(t, c)
	p.to("", "q", "v")
	p.settle() // nothing is on its way that would be spoilt before the next
	spoilt.Store(true)
	p.to("", "q", "v")
	wantCode(t, <-c.ended, kernel.CodeUnknown)
	p.done.wait(t, 2)
	eventually(t, "the broker knows", func() bool { return len(b.Connections()) == 0 })
	near, far := pipe()
	var work sync.WaitGroup
	work.Go(func() {
		if err := n.server.ServeClient("3", far); err == nil {
			t.Error("garbage was taken")
		}
	})
	if err := near.Send([]byte("GET / HTTP/1.1\r\n")); err != nil {
		t.Error(err)
	}
	work.Wait()
}
