package cluster

import (
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/metasvc/transport"
)

// startNode opens a node on the loopback that belongs to a cluster.
func startNode(t *testing.T, id string, change func(*Config)) *Node {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Identity: Identity{Cluster: "c", Node: id, Raft: id, Incarnation: id}, Listener: l, Logger: zerolog.Nop()}
	if change != nil {
		change(&cfg)
	}
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// know makes nodes know each other's address.
func know(t *testing.T, nodes ...*Node) {
	t.Helper()
	for _, n := range nodes {
		var peers []peer
		for _, other := range nodes {
			if other != n {
				id := other.Self()
				peers = append(peers, peer{Node: id.Node, Raft: id.Raft, Incarnation: id.Incarnation, Address: id.Address})
			}
		}
		if err := n.book.set("c", peers); err != nil {
			t.Fatal(err)
		}
	}
}

// tunnelBetween returns both ends of a tunnel.
func tunnelBetween(t *testing.T, a, b *Node) (near, far net.Conn) {
	t.Helper()
	near, err := a.DialTunnel(t.Context(), b.Self().Raft, []byte("meta"))
	if err != nil {
		t.Fatal(err)
	}
	far, meta, err := b.AcceptTunnel()
	if err != nil || string(meta) != "meta" {
		t.Fatalf("%q %v", meta, err)
	}
	return near, far
}

func TestTunnel(t *testing.T) { testTunnel(t, nil) }

func testTunnel(t *testing.T, change func(*Config)) {
	a, b := startNode(t, "1", change), startNode(t, "2", change)
	know(t, a, b)
	near, far := tunnelBetween(t, a, b)
	// A write that runs into its deadline is gone on with where it stopped.
	sent := make([]byte, 16<<20)
	_, _ = rand.Read(sent)
	done := 0
	for range 2 {
		_ = far.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		n, err := far.Write(sent[done:])
		if done += n; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("%d bytes written to somebody who does not read: %v", n, err)
		}
	}
	rest := make(chan error, 1)
	go func() {
		_ = far.SetWriteDeadline(time.Time{})
		_, err := far.Write(sent[done:])
		rest <- errors.Join(err, far.Close())
	}()
	got, err := io.ReadAll(near)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if err := <-rest; err != nil {
		t.Error(err)
	}
	_ = near.Close()
}

// TestCloseEndsTunnels: nothing of a node is left after its Close.
// TestTunnelHalfClosed: who has said the last word can still be answered.
func TestTunnelHalfClosed(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testTunnelHalfClosed(t, nil) })
	t.Run("TLS", func(t *testing.T) { testTunnelHalfClosed(t, newAuthority(t).change) })
}

func testTunnelHalfClosed(t *testing.T, change func(*Config)) {
	a, b := startNode(t, "1", change), startNode(t, "2", change)
	know(t, a, b)
	near, far := tunnelBetween(t, a, b)
	defer near.Close()
	for from, to := range map[net.Conn]net.Conn{near: far, far: near} {
		_ = to.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := from.Write([]byte("last words")); err != nil {
			t.Fatal(err)
		}
		if err := from.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if b, err := io.ReadAll(to); string(b) != "last words" || err != nil {
			t.Errorf("%q %v", b, err)
		}
	}
	if err := far.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

func TestCloseEndsTunnels(t *testing.T) {
	a, b := startNode(t, "1", nil), startNode(t, "2", nil)
	know(t, a, b)
	near, far := tunnelBetween(t, a, b)
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if _, err := near.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel survives the node")
	}
	if _, err := far.Read(make([]byte, 1)); err == nil {
		t.Error("a tunnel survives its node")
	}
	if _, _, err := b.AcceptTunnel(); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
	_ = near.Close()
}

// TestHelloOfStrangers: each of these is refused with its reason.
func TestHelloOfStrangers(t *testing.T) {
	a := startNode(t, "1", nil)
	for _, tt := range []struct {
		name string
		from func(*Identity)
		to   string
		code transport.Code
	}{
		{"another cluster", func(i *Identity) { i.Cluster = "d" }, "1", transport.CodeCluster},
		{"meant for another one", func(*Identity) {}, "3", transport.CodeTarget},
		{"of no cluster", func(i *Identity) { i.Cluster = "" }, "1", transport.CodeStarting},
		{"the same node", func(i *Identity) { i.Node, i.Raft, i.Incarnation = "1", "1", "1" }, "1", transport.CodeTwin},
	} {
		b := startNode(t, "2", func(c *Config) { tt.from(&c.Identity) })
		_, _, err := b.mux.Dial(t.Context(), a.Self().Address, transport.Hello{Kind: transport.KindTunnel, To: tt.to})
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != tt.code {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestLiveTwin: a copy of a directory whose original runs is refused by a third node;
// once the original is gone the copy is that node.
func TestLiveTwin(t *testing.T) {
	watch, original := startNode(t, "1", nil), startNode(t, "2", nil)
	know(t, watch, original)
	hello := func(n *Node) error {
		c, _, err := n.mux.Dial(t.Context(), watch.Self().Address, transport.Hello{Kind: transport.KindTunnel, To: "1"})
		if err == nil {
			_ = c.Close()
		}
		return err
	}
	if err := hello(original); err != nil {
		t.Fatal(err)
	}
	twin := startNode(t, "2", nil)
	r, ok := errors.AsType[*Refusal](hello(twin))
	if !ok || r.Code != transport.CodeTwin || r.From != "1" || !Final(r) {
		t.Errorf("%+v", r)
	}
	if err := hello(original); err != nil {
		t.Errorf("the original: %v", err)
	}
	if err := original.Close(); err != nil {
		t.Fatal(err)
	}
	if err := hello(twin); err != nil {
		t.Errorf("the copy, when the original is gone: %v", err)
	}
}

func TestInsecure(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Config{Listener: l, Logger: zerolog.Nop()}); !errors.Is(err, ErrInsecure) {
		t.Error(err)
	}
}
