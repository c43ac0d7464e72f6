package transport

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/rs/zerolog"
)

func startMux(t *testing.T, change func(*MuxConfig)) *Mux {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	cfg := MuxConfig{Listener: l, Timeout: 5 * time.Second, Logger: zerolog.Nop()}
	if change != nil {
		change(&cfg)
	}
	m := NewMux(cfg)
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
		if err := m.Close(); !errors.Is(err, ErrClosed) {
			t.Errorf("second close: %v", err)
		}
	})
	return m
}

// answer responds to the next call that reaches the transport.
func answer(t *testing.T, trans raft.Transport, resp any) {
	t.Helper()
	select {
	case rpc := <-trans.Consumer():
		rpc.Respond(resp, nil)
	case <-time.After(30 * time.Second):
		t.Error("no call arrives")
	}
}

func TestMuxGroups(t *testing.T) {
	a, b := startMux(t, nil), startMux(t, nil)
	to := raft.ServerAddress(b.cfg.Advertise)
	for _, id := range []uint32{1, 2} {
		client, err := a.Group(id)
		if err != nil {
			t.Fatal(err)
		}
		server, err := b.Group(id)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.Group(id); err == nil {
			t.Error("two transports of one group")
		}
		if _, ok := client.(raft.WithPreVote); !ok {
			t.Error("no pre-vote")
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			answer(t, server, &raft.RequestVoteResponse{Term: uint64(id), Granted: true})
		}()
		var resp raft.RequestVoteResponse
		if err := client.RequestVote("b", to, &raft.RequestVoteRequest{}, &resp); err != nil || resp.Term != uint64(id) {
			t.Errorf("group %d: %+v %v", id, resp, err)
		}
		<-done
	}
}

// TestMuxHeartbeat: also a heartbeat goes to the main loop.
func TestMuxHeartbeat(t *testing.T) {
	a, b := startMux(t, nil), startMux(t, nil)
	client, _ := a.Group(1)
	server, _ := b.Group(1)
	server.SetHeartbeatHandler(func(raft.RPC) { t.Error("fast path taken") })
	go answer(t, server, &raft.AppendEntriesResponse{Success: true})
	req := raft.AppendEntriesRequest{RPCHeader: raft.RPCHeader{Addr: []byte("a")}, Term: 3}
	var resp raft.AppendEntriesResponse
	if err := client.AppendEntries("b", raft.ServerAddress(b.cfg.Advertise), &req, &resp); err != nil || !resp.Success {
		t.Errorf("heartbeat: %+v %v", resp, err)
	}
}

// TestMuxCloseGroup: closing a transport ends its connections in use, and makes
// way for the next one.
func TestMuxCloseGroup(t *testing.T) {
	a, b := startMux(t, nil), startMux(t, nil)
	client, _ := a.Group(1)
	server, _ := b.Group(1)
	result := make(chan error, 1)
	go func() {
		result <- client.RequestVote("b", raft.ServerAddress(b.cfg.Advertise), &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	}()
	<-server.Consumer() // never answered
	if err := client.(raft.WithClose).Close(); err != nil {
		t.Error(err)
	}
	if err := <-result; err == nil {
		t.Error("a call survived its transport")
	}
	if _, err := a.Group(1); err != nil {
		t.Error(err)
	}
}

// TestMuxKinds: a connection of another kind arrives with what was said first, and
// nothing of it is read on the way.
func TestMuxKinds(t *testing.T) {
	a := startMux(t, func(c *MuxConfig) { c.Self = func() Identity { return Identity{Node: "1", Raft: "1-aa", Boot: 7} } })
	b := startMux(t, func(c *MuxConfig) { c.Self = func() Identity { return Identity{Node: "2", Address: "there"} } })
	c, who, err := a.Dial(t.Context(), b.cfg.Advertise, Hello{Kind: KindTunnel, To: "2", Meta: []byte("meta")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if who.Node != "2" || who.Address != "there" {
		t.Errorf("answered by %+v", who)
	}
	if _, err := c.Write([]byte("bytes")); err != nil {
		t.Fatal(err)
	}
	nc, err := b.Listener(KindTunnel).Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	h := nc.(*Conn).Hello
	if h.From.Raft != "1-aa" || h.From.Boot != 7 || h.To != "2" || string(h.Meta) != "meta" {
		t.Errorf("hello %+v", h)
	}
	got := make([]byte, 5)
	if _, err := io.ReadFull(nc, got); err != nil || string(got) != "bytes" {
		t.Errorf("%q %v", got, err)
	}
}

// TestMuxRefuses: what is not wanted gets a reason, and what is no hello is closed.
func TestMuxRefuses(t *testing.T) {
	var refuse atomic.Bool
	m := startMux(t, func(c *MuxConfig) {
		c.Admit = func(context.Context, net.Conn, Hello) error {
			if refuse.Load() {
				return &Refusal{Code: CodeRemoved, Reason: "it is gone"}
			}
			return nil
		}
	})
	other := startMux(t, nil)
	if _, err := m.Group(1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		hello  Hello
		refuse bool
		code   Code
	}{
		{"unknown group", Hello{Kind: KindGroup, Group: 2}, false, CodeNoGroup},
		{"unknown kind", Hello{Kind: 99}, false, CodeOther},
		{"not admitted", Hello{Kind: KindGroup, Group: 1}, true, CodeRemoved},
	} {
		refuse.Store(tt.refuse)
		_, _, err := other.Dial(t.Context(), m.cfg.Advertise, tt.hello)
		if r, ok := errors.AsType[*Refusal](err); !ok || r.Code != tt.code || r.Reason == "" {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	for _, bytes := range []string{"RFT1\x00\x00\x00\x01", "PRI * HTTP/2.0\r\n", helloMagic + "\xff\xff", helloMagic + "\x00\x02\x01\x01"} {
		c, err := net.Dial("tcp", m.cfg.Advertise)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write([]byte(bytes)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %v", bytes, err)
		}
		c.Close()
	}
}

// TestMuxBelievesNobody: an answer that does not verify ends the connection.
func TestMuxBelievesNobody(t *testing.T) {
	impostor := errors.New("impostor")
	a := startMux(t, func(c *MuxConfig) {
		c.Verify = func(context.Context, net.Conn, Hello, Identity, *Refusal) error { return impostor }
	})
	b := startMux(t, nil)
	if _, _, err := a.Dial(t.Context(), b.cfg.Advertise, Hello{Kind: KindRPC}); !errors.Is(err, impostor) {
		t.Error(err)
	}
}

// FuzzHello: nothing that is read as a hello is read in two ways, or allocates more
// than its bounds.
func FuzzHello(f *testing.F) {
	var seed bytes.Buffer
	_ = writeHello(&seed, Hello{Kind: KindTunnel, Group: 3, From: Identity{Cluster: "c", Node: "1", Raft: "1", Boot: 9}, To: "2", Meta: []byte("m")})
	f.Add(seed.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		h, err := readHello(bytes.NewReader(data))
		if err != nil {
			return
		}
		var again bytes.Buffer
		if err := writeHello(&again, h); err != nil {
			t.Fatal(err)
		}
		if h2, err := readHello(&again); err != nil || !reflect.DeepEqual(h, h2) {
			t.Errorf("%+v, then %+v: %v", h, h2, err)
		}
	})
}

func TestMemoryCut(t *testing.T) { synctest.Test(t, testMemoryCut) }

func testMemoryCut(t *testing.T) {
	net := NewMemory(100 * time.Millisecond)
	a, b := net.Join("a"), net.Join("b")
	call := func() error {
		over := make(chan struct{})
		var answering sync.WaitGroup
		answering.Go(func() {
			select {
			case rpc := <-b.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{}, nil)
			case <-over:
			}
		})
		defer answering.Wait()
		defer close(over)
		return a.RequestVote("b", "b", &raft.RequestVoteRequest{}, &raft.RequestVoteResponse{})
	}
	if err := call(); err != nil {
		t.Error(err)
	}
	net.Cut("a", "b")
	if err := call(); err == nil {
		t.Error("cut, but connected")
	}
	net.Heal("a", "b")
	if err := call(); err != nil {
		t.Error(err)
	}
}
