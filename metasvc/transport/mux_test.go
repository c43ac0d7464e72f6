package transport

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"testing"
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
	case <-time.After(5 * time.Second):
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

func TestMuxRest(t *testing.T) {
	m := startMux(t, nil)
	c, err := net.Dial("tcp", m.cfg.Advertise)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write([]byte("PRI * HTTP/2.0")); err != nil {
		t.Fatal(err)
	}
	got, err := m.Rest().Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	b := make([]byte, 14)
	if _, err := io.ReadFull(got, b); err != nil || string(b) != "PRI * HTTP/2.0" {
		t.Errorf("%q %v", b, err)
	}
}

// TestMuxRefuses: what is not wanted is closed.
func TestMuxRefuses(t *testing.T) {
	var refuse atomic.Bool
	m := startMux(t, func(c *MuxConfig) {
		c.Authorize = func(net.Conn) error {
			if refuse.Load() {
				return errors.New("stranger")
			}
			return nil
		}
	})
	if _, err := m.Group(1); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name   string
		group  uint32
		refuse bool
	}{{"unknown group", 2, false}, {"not authorized", 1, true}} {
		refuse.Store(tt.refuse)
		c, err := net.Dial("tcp", m.cfg.Advertise)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Write(binary.BigEndian.AppendUint32([]byte(magic), tt.group)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(5 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", tt.name, err)
		}
		c.Close()
	}
}

func TestMemoryCut(t *testing.T) {
	net := NewMemory(100 * time.Millisecond)
	a, b := net.Join("a"), net.Join("b")
	call := func() error {
		go func() {
			select {
			case rpc := <-b.Consumer():
				rpc.Respond(&raft.RequestVoteResponse{}, nil)
			case <-time.After(200 * time.Millisecond):
			}
		}()
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
