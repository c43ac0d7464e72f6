package mqtt

import (
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/rs/zerolog"

	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// rig is a server on a fake kernel.
type rig struct {
	t    testing.TB
	node *fakeNode
	srv  *Server
	wg   sync.WaitGroup
	ends []net.Conn
}

func newRig(t testing.TB, l Limits) *rig {
	n := &fakeNode{sessions: map[string]*fakeSession{}}
	r := &rig{t: t, node: n, srv: newServer(n, l, zerolog.Nop())}
	t.Cleanup(func() {
		for _, c := range r.ends {
			_ = c.Close()
		}
		r.wg.Wait()
	})
	return r
}

func (r *rig) session(id string) *fakeSession {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return r.node.sessions[id]
}

func (r *rig) member(id, filter string) *fakeMember {
	s := r.session(id)
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.feeds[filter]
}

// peer is the client's end of a connection, speaking bytes.
type peer struct {
	t       testing.TB
	c       net.Conn
	rd      *wire.Reader
	version byte
}

func (r *rig) dial() *peer {
	a, b := net.Pipe()
	r.wg.Go(func() {
		defer func() { _ = b.Close() }()
		r.srv.handle(b)
	})
	r.ends = append(r.ends, a)
	return &peer{t: r.t, c: a, rd: wire.NewReader(a, 16<<20)}
}

// connect dials and connects; it returns the CONNACK.
func (r *rig) connect(req wire.ConnectRequest) (*peer, *wire.ConnectAnswer) {
	r.t.Helper()
	p := r.dial()
	p.version = req.Version
	p.send(req.Append(nil))
	a, err := wire.ParseConnack(req.Version, p.want(wire.Connack))
	if err != nil {
		r.t.Fatal(err)
	}
	return p, a
}

func (p *peer) send(b []byte) {
	p.t.Helper()
	_ = p.c.SetWriteDeadline(time.Now().Add(30 * time.Second))
	if _, err := p.c.Write(b); err != nil {
		p.t.Fatalf("write % x: %v", b, err)
	}
}

// next returns the next packet, or first 0 at the end of the connection.
func (p *peer) next() (first byte, body []byte) {
	p.t.Helper()
	for {
		first, body, ok, err := p.rd.Take()
		if err != nil {
			p.t.Fatal(err)
		}
		if ok {
			return first, slices.Clone(body)
		}
		if _, err := p.rd.Fill(); err != nil {
			return 0, nil
		}
	}
}

func (p *peer) want(pt byte) []byte {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != pt {
		p.t.Fatalf("got packet %d (% x), want %d", first>>4, body, pt)
	}
	return body
}

// wantEnd wants the connection to end, in version 5 with DISCONNECT of a code.
func (p *peer) wantEnd(code wire.Code) {
	p.t.Helper()
	first, body := p.next()
	if p.version == wire.V5 && code != wire.Success {
		if first>>4 != wire.Disconnect {
			p.t.Fatalf("got packet %d (% x), want DISCONNECT", first>>4, body)
		}
		d, err := wire.ParseDisconnect(wire.V5, body)
		if err != nil || d.Code != code {
			p.t.Fatalf("got DISCONNECT 0x%02x (%s), %v, want 0x%02x", d.Code, d.Reason, err, code)
		}
		first, body = p.next()
	}
	if first != 0 {
		p.t.Fatalf("got packet %d (% x), want the end", first>>4, body)
	}
}

func (p *peer) subscribe(filters ...wire.Filter) []byte {
	p.t.Helper()
	p.send((&wire.SubscribeRequest{ID: 7, Filters: filters}).Append(nil, p.version))
	_, codes, err := wire.ParseSuback(wire.Suback, p.version, p.want(wire.Suback))
	if err != nil {
		p.t.Fatal(err)
	}
	return codes
}

func (p *peer) wantMessage() wire.Message {
	p.t.Helper()
	first, body := p.next()
	if first>>4 != wire.Publish {
		p.t.Fatalf("got packet %d (% x), want PUBLISH", first>>4, body)
	}
	var m wire.Message
	if err := m.Parse(p.version, first, body); err != nil {
		p.t.Fatal(err)
	}
	return m
}

func publishPacket(version, qos byte, id uint16, topic, payload string, props ...byte) []byte {
	f := wire.Frame{Version: version, QoS: qos, ID: id, Topic: []byte(topic), Payload: []byte(payload), Properties: props}
	b, _, _ := f.Append(nil)
	return b
}
