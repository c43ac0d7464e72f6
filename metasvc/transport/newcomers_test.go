package transport

import (
	"errors"
	"net"
	"testing"
)

// TestSilentConnectionsGiveWay: however many connections say nothing, a node that does
// speak gets in, and those that came last may still.
func TestSilentConnectionsGiveWay(t *testing.T) {
	a, b := startMux(t, nil), startMux(t, nil)
	const places = 8
	b.fresh.mu.Lock()
	b.fresh.max = places
	b.fresh.mu.Unlock()
	go func() {
		for {
			if c, err := b.Listener(KindRPC).Accept(); err != nil {
				return
			} else {
				_ = c.Close()
			}
		}
	}()
	var silent []net.Conn
	for range 3 * places {
		c, err := net.Dial("tcp", b.cfg.Advertise)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	for range 2 {
		c, _, err := a.Dial(t.Context(), b.cfg.Advertise, Hello{Kind: KindRPC})
		if err != nil {
			t.Fatal(err)
		}
		_ = c.Close()
	}
	for _, c := range silent[:2*places] { // no timeout: they are closed at once
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Error("bytes for one that is silent")
		}
	}
	if err := writeHello(silent[3*places-1], Hello{Kind: KindRPC}); err != nil {
		t.Fatal(err)
	}
	if _, err := readAnswer(silent[3*places-1]); err != nil {
		t.Errorf("the last one: %v", err)
	}
}

// TestNewcomersThatHaveProvedStay: nobody who says nothing takes the place of a node, and
// who has lost it learns so.
func TestNewcomersThatHaveProvedStay(t *testing.T) {
	n := newNewcomers(2)
	conn := func() net.Conn {
		c, other := net.Pipe()
		t.Cleanup(func() { _ = errors.Join(c.Close(), other.Close()) })
		return c
	}
	a, b, c, d := conn(), conn(), conn(), conn()
	if !n.add(a) || !n.add(b) || n.proved(a) != nil {
		t.Fatal("no place for two")
	}
	if !n.add(c) || !errors.Is(n.proved(b), net.ErrClosed) || n.proved(a) != nil {
		t.Error("not the silent one gave way")
	}
	if n.proved(c) != nil || n.add(d) {
		t.Error("a node gave way")
	}
	n.remove(b)
	n.remove(a)
	if !n.add(d) || n.silent.Len() != 1 || len(n.all) != 2 {
		t.Error("no place after one has gone")
	}
	n.close()
	if n.add(conn()) {
		t.Error("let in after the end")
	}
}
