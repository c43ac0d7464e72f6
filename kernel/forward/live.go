package forward

import (
	"fmt"
	"slices"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

// live is what comes of live messages to a link's end at the client's node. What a
// front-end does not take waits here, and all that comes after it; nothing else does.
type live struct {
	calls sync.Mutex // held while a live subscriber is called

	// the reader's
	one liveMessage

	// guarded by link.out.mu
	feeds   map[uint64]*feed
	waits   []liveFrame
	bytes   int // of those
	unacked int // bytes that were taken and not acknowledged
	running bool
	wake    chan struct{} // capacity 1
}

// feed is a live subscriber.
type feed struct {
	to     kernel.LiveSubscriber
	handle uint64
}

// liveFrame is the body of a frame that waits; size counts its head, too.
type liveFrame struct {
	body []byte
	size int
}

// liveMessage is a message as it is carried. It aliases the body.
type liveMessage struct {
	feed    uint64
	message kernel.LiveMessage
	record  kernel.Record
}

func (m *liveMessage) read(body []byte) error {
	r := read(body)
	m.feed = r.Uint()
	m.message = kernel.LiveMessage{Origin: kernel.ConnectionID(r.Uint()), Name: r.alias(), Record: &m.record}
	r.record(&m.record)
	return r.done(kindLive)
}

// reset lets go of what m aliases.
func (m *liveMessage) reset() {
	clear(m.record.Headers)
	m.message, m.record = kernel.LiveMessage{}, kernel.Record{Headers: m.record.Headers[:0]}
}

// await returns when no live subscriber is being called.
func (v *live) await() {
	v.calls.Lock()
	//lint:ignore SA2001 who holds it is waited for
	v.calls.Unlock()
	select {
	case v.wake <- struct{}{}:
	default:
	}
}

// onLive hands on a live message, or keeps it.
func (l *link) onLive(body []byte) error {
	v, size := &l.live, headSize+len(body)
	if err := v.one.read(body); err != nil {
		return err
	}
	defer v.one.reset()
	l.out.mu.Lock()
	waits := v.running
	l.out.mu.Unlock()
	taken := !waits && l.offer(&v.one)
	l.out.mu.Lock()
	defer l.out.mu.Unlock()
	if taken {
		l.ackLive(size)
		return nil
	}
	if v.bytes > liveWindow {
		return fmt.Errorf("%w: more live messages than may be under way", errMalformed)
	}
	v.waits = append(v.waits, liveFrame{slices.Clone(body), size})
	if v.bytes += size; !v.running {
		v.running = true
		l.work.Go(l.trickle)
	}
	return nil
}

// offer hands a message to its feed, if that is there, and reports whether it needs to
// be kept no more.
func (l *link) offer(m *liveMessage) bool {
	v := &l.live
	v.calls.Lock()
	defer v.calls.Unlock()
	l.out.mu.Lock()
	f := v.feeds[m.feed]
	l.out.mu.Unlock()
	if f == nil {
		return true
	}
	if !f.to.Live(&m.message, f.handle) {
		return false
	}
	l.traffic.Out.Add(1)
	l.traffic.OutBytes.Add(uint64(len(m.record.Value)))
	return true
}

// ackLive notes that bytes were taken. The caller holds out.mu.
func (l *link) ackLive(n int) {
	if l.live.unacked += n; l.live.unacked < liveStep {
		return
	}
	start := l.out.begin(kindLiveTaken)
	l.out.buf = codec.AppendUint(l.out.buf, uint64(l.live.unacked))
	l.out.end(start)
	l.live.unacked = 0
}

// roomTries is how often a subscriber may say that it has room and then not take a
// message: one that it has never room for is dropped.
const roomTries = 100

// trickle hands on what waits, in order, as fast as it is taken.
func (l *link) trickle() {
	v := &l.live
	var one liveMessage
	for tries := 0; ; tries++ {
		l.out.mu.Lock()
		if len(v.waits) == 0 {
			v.waits, v.running = nil, false
			l.out.mu.Unlock()
			return
		}
		head := v.waits[0]
		l.out.mu.Unlock()
		if one.read(head.body) == nil && !l.offer(&one) && tries < roomTries {
			if !l.awaitRoom(one.feed) {
				return
			}
			continue
		}
		tries = -1
		l.out.mu.Lock()
		v.waits[0] = liveFrame{}
		v.waits = v.waits[1:]
		v.bytes -= head.size
		l.ackLive(head.size)
		l.out.mu.Unlock()
	}
}

// awaitRoom waits until a feed has room, or is no more; false if the link has ended.
func (l *link) awaitRoom(id uint64) bool {
	l.out.mu.Lock()
	f := l.live.feeds[id]
	l.out.mu.Unlock()
	if f == nil {
		return true
	}
	select {
	case <-f.to.Room():
	case <-l.live.wake:
	case <-l.ended:
		return false
	}
	return true
}
