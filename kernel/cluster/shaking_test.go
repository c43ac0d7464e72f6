package cluster

import (
	"crypto/tls"
	"net"
	"sync"
	"testing"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// TestHandshakesTakeTurns: handshakes that compute wait for each other; those that wait for the
// other side, for ever maybe, are in nobody's way, and none keeps its place.
func TestHandshakesTakeTurns(t *testing.T) {
	ours := newAuthority(t)
	a, b := startNode(t, "1", ours.change), startNode(t, "2", ours.change)
	know(t, a, b)
	for _, begin := range [][]byte{nil, {22}, {22, 3, 1, 1, 0, 1}, []byte("GET / HTTP/1.1\r\n\r\n")} {
		c, err := net.Dial("tcp", b.Self().Address)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write(begin); err != nil {
			t.Fatal(err)
		}
	}
	half, err := net.Dial("tcp", b.Self().Address)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	var work sync.WaitGroup
	for range 40 {
		work.Go(func() {
			c, _, err := a.mux.Dial(t.Context(), b.Self().Address, transport.Hello{Kind: transport.KindRPC})
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
		})
	}
	stranger := tls.Client(half, &tls.Config{InsecureSkipVerify: true})
	if err := stranger.Handshake(); err == nil { // TLS 1.3: the refusal comes with the first read
		_, err = stranger.Read(make([]byte, 1))
		if err == nil {
			t.Error("without a certificate")
		}
	}
	work.Wait()
	for name, places := range map[string]shakes{"who dials": a.keys.outgoing, "who accepts": b.keys.incoming} {
		until(t, name+" has all places back", func() bool { return len(places) == 0 })
	}
}

// TestShakingGivesItsPlaceBack: whatever comes first, the end or a place.
func TestShakingGivesItsPlaceBack(t *testing.T) {
	places := make(shakes, 1)
	here, there := net.Pipe()
	defer there.Close()
	s := &shaking{Conn: here, places: places}
	s.compute()
	s.rest()
	s.rest()
	s.compute()
	if err := s.Close(); err != nil || len(places) != 0 {
		t.Errorf("closed: %v, %d places taken", err, len(places))
	}
	s.compute() // had waited for it until now
	if len(places) != 0 {
		t.Error("a place is taken after the end")
	}
}

// TestTunnelsAreDialledInTurns: a crowd of clients waits, and those to another node do not
// wait for it.
func TestTunnelsAreDialledInTurns(t *testing.T) {
	all := newTunnels()
	var ends []func()
	for range maxTunnelDials {
		end, err := all.begin(t.Context(), "1")
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	other, err := all.begin(t.Context(), "2")
	if err != nil {
		t.Fatal(err)
	}
	other()
	next := make(chan func())
	go func() {
		end, err := all.begin(t.Context(), "1")
		if err != nil {
			t.Error(err)
		}
		next <- end
	}()
	select {
	case <-next:
		t.Error("one more")
	default:
	}
	for _, end := range ends {
		end()
	}
	(<-next)()
}
