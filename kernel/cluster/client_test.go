package cluster

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// echo serves clients: what one sends comes back until it sends nothing.
type echo struct{ from chan string }

func (e *echo) ServeClient(from string, s Stream) error {
	e.from <- from
	for {
		b, err := s.Recv()
		if err != nil {
			return err
		}
		if len(b) == 0 {
			return nil
		}
		if err := s.Send(b); err != nil {
			return err
		}
	}
}

func (e *echo) AnswerLogin(_ context.Context, from string, req []byte) ([]byte, error) {
	return append([]byte(from+" asks "), req...), nil
}

func clientNodes(t *testing.T, change func(*Config)) (a, b *Node, e *echo) {
	a, b = startNode(t, "1", change), startNode(t, "2", change)
	know(t, a, b)
	e = &echo{from: make(chan string, 1000)}
	b.OnClients(e)
	return a, b, e
}

// TestClientStream: messages of any size up to the limit go both ways, and either end ends
// the stream.
func TestClientStream(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testClientStream(t, nil) })
	t.Run("TLS", func(t *testing.T) { testClientStream(t, newAuthority(t).change) })
}

func testClientStream(t *testing.T, change func(*Config)) {
	a, b, e := clientNodes(t, change)
	s, err := a.OpenClient(t.Context(), "2")
	if err != nil {
		t.Fatal(err)
	}
	sent := bytes.Repeat([]byte("0123456789abcdef"), MaxStreamMessage/16)
	for _, n := range []int{1, 1000, MaxStreamMessage} {
		if err := s.Send(sent[:n]); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Recv(); err != nil || !bytes.Equal(got, sent[:n]) {
			t.Fatalf("%d bytes of %d, %v", len(got), n, err)
		}
	}
	if from := <-e.from; from != "1" {
		t.Error(from)
	}
	if err := s.Send(nil); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	s.Close()
	if got, err := a.CallLogin(t.Context(), "2", []byte("x")); err != nil || string(got) != "1 asks x" {
		t.Errorf("%q %v", got, err)
	}
	s, err = a.OpenClient(t.Context(), "2")
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := s.Recv(); err == nil || err == io.EOF {
		t.Errorf("of a stream that was closed here: %v", err)
	}
	if s, err = a.OpenClient(t.Context(), "2"); err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := s.Recv(); err == nil || err == io.EOF {
		t.Errorf("of a stream of a node that is closed: %v", err)
	}
	s.Close()
	if _, err := a.OpenClient(t.Context(), "2"); err == nil {
		t.Error("a stream to a node that has gone")
	}
}

// TestClientStreamsAreApart: many clients share a connection, and one that takes nothing
// holds nobody up.
func TestClientStreamsAreApart(t *testing.T) {
	a, _, _ := clientNodes(t, nil)
	for range 20 { // more than the window of the connection
		s, err := a.OpenClient(t.Context(), "2")
		if err != nil {
			t.Fatal(err)
		}
		full := make(chan struct{})
		var work sync.WaitGroup
		work.Go(func() {
			b := make([]byte, 128<<10)
			for i := 0; s.Send(b) == nil; i++ {
				if i == 4 {
					close(full)
				}
			}
		})
		t.Cleanup(func() {
			s.Close()
			work.Wait()
		})
		<-full
	}
	var work sync.WaitGroup
	for range 200 {
		work.Go(func() {
			s, err := a.OpenClient(t.Context(), "2")
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			if err := s.Send(make([]byte, 10_000)); err != nil {
				t.Error(err)
			}
			if _, err := s.Recv(); err != nil {
				t.Error(err)
			}
		})
	}
	work.Wait()
	if n := len(a.clients.links.list); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestClosedStream: the end that serves can end a stream that nobody sends on.
func TestClosedStream(t *testing.T) {
	a, b, _ := clientNodes(t, nil)
	b.OnClients(&closer{})
	s, err := a.OpenClient(t.Context(), "2")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Send([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Recv(); err == nil || err == io.EOF {
		t.Error(err)
	}
}

type closer struct{ echo }

func (*closer) ServeClient(_ string, s Stream) error {
	if _, err := s.Recv(); err != nil {
		return err
	}
	time.AfterFunc(0, s.Close)
	_, err := s.Recv()
	return err
}

// TestClientsOfStrangers: only members bring clients, and only where somebody serves them.
func TestClientsOfStrangers(t *testing.T) {
	a, b, _ := clientNodes(t, nil)
	stranger := startNode(t, "3", func(c *Config) { c.Identity.Cluster = "another" })
	_, _, err := stranger.mux.Dial(t.Context(), b.Self().Address, transport.Hello{Kind: transport.KindClient, To: "2"})
	if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != transport.CodeCluster {
		t.Error(err)
	}
	nobody := startNode(t, "4", nil)
	know(t, a, b, nobody)
	s, err := a.OpenClient(t.Context(), "4")
	if err == nil {
		defer s.Close()
		_, err = s.Recv()
	}
	if err == nil || err == io.EOF {
		t.Error("a node that serves no clients takes one")
	}
	if _, err := a.CallLogin(t.Context(), "4", nil); err == nil {
		t.Error("a node that serves no clients answers a login")
	}
}
