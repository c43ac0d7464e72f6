package mqtt

import (
	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/protocols/mqtt/wire"
)

// shared holds the encoded forms of one live message, so that many subscribers
// cost one encoding for each (version, QoS, retain, identifier). It is kept in
// LiveMessage.Frame. The first subscriber encodes straight into its buffer:
// most messages have one.
type shared struct {
	qos     byte
	retain  bool
	expires int64
	forms   []form
}

type form struct {
	version    byte
	qos        byte
	retain     bool
	identifier uint32
	frame
}

// seenOnce stands in LiveMessage.Frame after the first subscriber.
var seenOnce = new(shared)

// live takes a message for a session-less subscription. It returns false when
// a QoS 1 message finds the buffer full; QoS 0 messages are dropped then.
func (s *sender) live(f *feed, lm *kernel.LiveMessage) bool {
	now := lm.Record.Timestamp
	sh, _ := lm.Frame.(*shared)
	if sh == nil {
		return s.liveFirst(f, lm)
	}
	if sh == seenOnce {
		sh = s.share(lm)
		lm.Frame = sh
	}
	if sh.expires != 0 {
		now = kernel.Millis()
	}
	fm := s.form(sh, f, lm)
	if s.tooLarge(len(fm.bytes)) {
		s.dropped.Add(1)
		return true
	}
	if fm.qos == 0 {
		if s.dropLocked(len(fm.bytes)) {
			return true
		}
		s.copyFrame(&fm.frame, 0, sh.expires, now)
		return true
	}
	if s.fullLocked(len(fm.bytes)) {
		return false
	}
	if s.win.open() {
		s.copyFrame(&fm.frame, s.win.take(f, fm.qos, 0, 0), sh.expires, now)
		return true
	}
	s.win.park(parked{frame: fm.frame, feed: f, qos: fm.qos, expires: sh.expires})
	return true
}

func (s *sender) liveFirst(f *feed, lm *kernel.LiveMessage) bool {
	m := &s.msg
	m.fromRecord(lm.Record, lm.Name, s.version == wire.V5)
	fr := s.frameOf(f, m)
	size := fr.Size()
	if s.tooLarge(size) {
		s.dropped.Add(1)
		return true
	}
	var now int64
	if m.expires != 0 {
		now = kernel.Millis()
	}
	switch {
	case fr.QoS == 0:
		if s.dropLocked(size) {
			return true
		}
		s.append(&fr, m, now)
	case s.fullLocked(size):
		return false
	case s.win.open():
		fr.ID = s.win.take(f, fr.QoS, 0, 0)
		s.append(&fr, m, now)
	default:
		s.win.park(parked{frame: encode(&fr, m), feed: f, qos: fr.QoS, expires: m.expires})
	}
	lm.Frame = seenOnce
	return true
}

// share takes the message apart for sharing.
func (s *sender) share(lm *kernel.LiveMessage) *shared {
	m := &s.msg
	m.fromRecord(lm.Record, lm.Name, false)
	return &shared{qos: m.qos, retain: m.retain, expires: m.expires}
}

// form returns the encoded form for a feed, encoding it if it is the first to
// need it.
func (s *sender) form(sh *shared, f *feed, lm *kernel.LiveMessage) *form {
	want := form{version: s.version, qos: min(f.qos, sh.qos), retain: sh.retain && f.asRetained}
	if s.version == wire.V5 {
		want.identifier = f.identifier
	}
	for i := range sh.forms {
		if h := &sh.forms[i]; h.version == want.version && h.qos == want.qos && h.retain == want.retain && h.identifier == want.identifier {
			return h
		}
	}
	m := &s.msg
	m.fromRecord(lm.Record, lm.Name, s.version == wire.V5)
	fr := s.frameOf(f, m)
	want.frame = encode(&fr, m)
	sh.forms = append(sh.forms, want)
	return &sh.forms[len(sh.forms)-1]
}

// dropLocked drops a QoS 0 message when too much waits for the client already.
func (s *sender) dropLocked(size int) bool {
	if b := s.backlog(); (b == 0 || b+size <= s.bound(s.bufBytes)) && s.book(size) {
		return false
	}
	s.dropped.Add(1)
	return true
}

// fullLocked reports that a QoS 1 message cannot be taken, and opens a channel
// for its publisher to wait on.
func (s *sender) fullLocked(size int) bool {
	b, p := s.backlog(), s.win.parkedBytes
	if (b == 0 || b+size <= s.bound(s.bufBytes)) && (p == 0 || p+size <= s.bound(s.liveBytes)) {
		if s.book(size) {
			return false
		}
		s.want.live = size
		s.look()
	}
	if s.room == nil {
		s.room = make(chan struct{})
	}
	return true
}
