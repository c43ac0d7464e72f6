package mqtt

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/listener"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

const (
	// keepBuffer is the largest outgoing buffer that an idle connection keeps.
	keepBuffer = 64 << 10
	// maxKeep is the largest buffer that is used again at all, and largeFrame
	// the size from which room for a packet is made at once, not by doubling.
	maxKeep    = 2 << 20
	largeFrame = 64 << 10
	// lowMark is the backlog in bytes below which members are given credit.
	lowMark = 256 << 10
	// maxControl is how many bytes of acknowledgements and answers may wait: a
	// client that sends this much without reading is cut off.
	maxControl = 1 << 20
	// accountStep is how far a connection's backlog may be from what the total
	// of all connections has of it; tightBytes is the bound of each connection
	// while that total is over its limit.
	accountStep = 32 << 10
	tightBytes  = 64 << 10
)

// sender is the outgoing side of a connection: what waits for the writer and
// the window of QoS 1 and 2 deliveries. Everything is guarded by mu; whoever appends
// releases it with unlock, which wakes the writer.
type sender struct {
	version   byte
	maxPacket int // client's Maximum Packet Size, 0 = none
	bufBytes  int // bound for QoS 0
	liveBytes int // bound for parked live messages
	clientID  string
	total     *listener.Memory // backlog of all connections

	mu      sync.Mutex
	buf     []byte // whole packets
	writing int    // bytes in the writer's hands
	counted int    // bytes of the backlog that are in total
	ended   bool   // total does not count the connection any more
	want    wants  // room in the total
	control int    // bytes in buf that are not messages
	idle    bool   // the writer waits for wake
	wake    chan struct{}
	told    bool // CONNACK with success is in the buffer or out: DISCONNECT may follow
	closed  bool // nothing is taken any more; what is there still goes out
	dead    bool // the socket has failed: the writer ends at once

	win      window
	pins     bool              // QoS 2 deliveries are noted in the log
	pinning  map[uint16]parked // those whose PUBLISH waits for that
	pinBytes int               // of them
	settles  []settlement      // what is settled by having been written
	acked    settlement        // run of acknowledgements not handed on yet
	room     chan struct{}
	msg      message
	dropped  *atomic.Uint64 // the protocol's counter of messages that clients did not get
}

func (s *sender) init(version byte, maxPacket, quota int, l *Limits) {
	s.version, s.maxPacket = version, maxPacket
	s.bufBytes, s.liveBytes = l.OutBuffer, l.LiveBuffer
	s.dropped = new(atomic.Uint64) // until the login
	s.win.init(quota)
}

// unlock releases mu and wakes the writer if there is work for it.
func (s *sender) unlock() {
	s.account()
	if cap(s.msg.props) > keptProps {
		s.msg.props = nil
	}
	wake := s.idle && (len(s.buf) > 0 || len(s.settles) > 0 || s.closed || s.dead || s.want.poll && !s.want.seen)
	if wake {
		s.idle = false
	}
	s.mu.Unlock()
	if wake {
		s.wake <- struct{}{} // capacity 1, and idle says it is empty
	}
}

// backlog is how many bytes the client has not taken.
func (s *sender) backlog() int { return len(s.buf) + s.writing }

// account keeps the total of all connections about right. mu is held.
func (s *sender) account() {
	if d := s.backlog() + s.win.parkedBytes + s.win.memberBytes + s.pinBytes + s.want.reserved - s.counted; !s.ended && (d >= accountStep || d <= -accountStep) {
		s.total.Add(d)
		s.counted += d
	}
}

// unaccount takes the connection out of the total.
func (s *sender) unaccount() {
	s.mu.Lock()
	s.total.Add(-s.counted)
	s.counted, s.ended = 0, true
	s.mu.Unlock()
}

// bound is n, or less while all connections together have too much waiting.
func (s *sender) bound(n int) int {
	if s.total.Over() {
		return min(n, tightBytes)
	}
	return n
}

// packet appends a packet that is not a message.
func (s *sender) packet(p []byte) {
	s.mu.Lock()
	if !s.closed {
		s.buf = append(s.buf, p...)
		s.control += len(p)
	}
	s.unlock()
}

// ackLocked appends an acknowledgement.
func (s *sender) ackLocked(pt byte, id uint16, code wire.Code) {
	if s.closed {
		return
	}
	n := len(s.buf)
	s.buf = wire.AppendAck(s.buf, pt, s.version, id, code)
	s.control += len(s.buf) - n
}

// deliver writes one record to a member's subscription, or parks it.
func (s *sender) deliver(f *feed, d *kernel.Delivery, now int64) {
	if s.closed || f.gone {
		return // the member is leaving: what it holds goes back
	}
	m := &s.msg
	m.fromView(d.Record, f.topic, s.version == wire.V5)
	if f.overtaken != nil && m.retain {
		f.overtake(m.topic)
	}
	s.win.delivered(f, d.Record.Size)
	if m.expired(now) || f.noLocal && len(m.origin) > 0 && string(m.origin) == s.clientID {
		s.settled(f, d.Partition, d.Offset)
		return
	}
	fr := s.frameOf(f, m)
	fr.Dup = d.Redelivered && fr.QoS > 0
	if s.tooLarge(fr.Size()) {
		s.dropped.Add(1)
		s.settled(f, d.Partition, d.Offset)
		return
	}
	if fr.QoS == 0 {
		s.append(&fr, m, now)
		s.settled(f, d.Partition, d.Offset)
		return
	}
	if s.win.open() {
		fr.ID = s.win.take(f, fr.QoS, d.Partition, d.Offset)
		if fr.QoS == 2 && s.pins {
			s.pin(f, fr.ID, encode(&fr, m), m.expires)
			return
		}
		s.append(&fr, m, now)
		return
	}
	s.win.park(parked{frame: encode(&fr, m), feed: f, qos: fr.QoS, partition: d.Partition, offset: d.Offset, expires: m.expires})
}

func (s *sender) tooLarge(size int) bool { return s.maxPacket > 0 && size > s.maxPacket }

// frameOf is the packet in which a feed shows m.
func (s *sender) frameOf(f *feed, m *message) wire.Frame {
	fr := wire.Frame{
		Version: s.version, QoS: min(f.qos, m.qos), Retain: m.retain && f.asRetained,
		Topic: m.topic, Properties: m.props, Payload: m.payload,
	}
	if m.v5 {
		fr.Identifier = f.identifier
	}
	return fr
}

// makeRoom grows the buffer for a large packet at once.
func (s *sender) makeRoom(n int) {
	if n >= largeFrame {
		s.buf = slices.Grow(s.buf, n)
	}
}

// append encodes straight into the buffer.
func (s *sender) append(fr *wire.Frame, m *message, now int64) {
	s.makeRoom(fr.Size())
	start := len(s.buf)
	out, _, props := fr.Append(s.buf)
	s.buf = out
	if m.expiryAt >= 0 {
		patchExpiry(s.buf[start+props+m.expiryAt:], m.expires, now)
	}
}

// encode makes a frame of its own.
func encode(fr *wire.Frame, m *message) (f frame) {
	var props int
	f.bytes, f.idAt, props = fr.Append(make([]byte, 0, fr.Size()))
	if m.expiryAt >= 0 {
		f.expiryAt = props + m.expiryAt
	}
	return f
}

// copyFrame appends an encoded frame with its packet identifier.
func (s *sender) copyFrame(f *frame, id uint16, expires, now int64) {
	s.makeRoom(len(f.bytes))
	start := len(s.buf)
	s.buf = append(s.buf, f.bytes...)
	if f.idAt > 0 {
		s.buf[start+f.idAt], s.buf[start+f.idAt+1] = byte(id>>8), byte(id)
	}
	if f.expiryAt > 0 {
		patchExpiry(s.buf[start+f.expiryAt:], expires, now)
	}
}

// settled notes that a delivery needs no acknowledgement by the client: it is
// accepted once what is before it in the buffer has been written. (Members of
// QoS 0 subscriptions settle by themselves.)
func (s *sender) settled(f *feed, partition int32, offset int64) {
	if !f.counted() {
		return
	}
	if n := len(s.settles); n > 0 && s.settles[n-1].extend(f, false, partition, offset) {
		return
	}
	s.settles = append(s.settles, settlement{feed: f, partition: partition, first: offset, last: offset})
}

// unparkLocked sends what was parked, as far as the window allows.
func (s *sender) unparkLocked(now int64) {
	for {
		p, ok := s.win.unpark()
		if !ok {
			return
		}
		if p.feed.gone || s.closed {
			continue
		}
		if p.expires != 0 && p.expires <= now {
			s.settled(p.feed, p.partition, p.offset)
			continue
		}
		id := s.win.take(p.feed, p.qos, p.partition, p.offset)
		if p.qos == 2 && s.pins && p.feed.member != nil {
			s.pin(p.feed, id, p.frame, p.expires)
			continue
		}
		s.copyFrame(&p.frame, id, p.expires, now)
	}
}

// roomLocked tells publishers that wait for this connection that they need not
// any more.
func (s *sender) roomLocked() {
	if s.room != nil && (s.closed || s.backlog() <= s.bufBytes/2 && s.win.parkedBytes <= s.liveBytes/2 && s.openFor(s.want.live)) {
		s.want.live = 0
		close(s.room)
		s.room = nil
	}
}
