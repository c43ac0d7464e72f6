package mqtt

import "slices"

const (
	// maxInFlight bounds a window: slots are indexed by packet identifier.
	maxInFlight = 32768
	// creditBytes is about how much a member may be allowed to hand out before
	// the bytes have left: it turns into messages by their size so far.
	creditBytes = 1 << 20
	// creditQoS0 is the most credit of a member whose deliveries need no
	// acknowledgement.
	creditQoS0 = 256
	// creditExtra bounds credit beyond the window, see window.grant.
	creditExtra = 64
)

// slot is one QoS 1 or 2 delivery that the client has not acknowledged.
type slot struct {
	feed      *feed  // nil: its subscription has gone
	id        uint16 // 0: free
	qos       byte
	stage     stage
	pinned    bool   // QoS 2, and the session has it in the log
	count     uint64 // order of the deliveries of the session
	partition int32
	offset    int64
}

// parked is one QoS 1 or 2 delivery that waits for a slot.
type parked struct {
	frame
	feed      *feed
	qos       byte
	partition int32
	offset    int64
	expires   int64 // ms since 1970, 0 = never
}

// window keeps the QoS 1 and 2 deliveries of one connection within the client's
// Receive Maximum, over all its subscriptions, exact to the message. It is
// pure and not safe for concurrent use: sender.mu guards it.
//
// Members get their share of the free part of the window as credit. Nobody
// knows who will use it, so when idle members hold what a busy one lacks, the
// busy one gets a little more than there is; once the window is full, all credit
// is taken back. What was on its way then is parked here until the client
// acknowledges something.
type window struct {
	quota    int
	inFlight int                   // slots taken
	credit   int                   // granted to QoS 1 members, not delivered yet
	feeds    int                   // QoS 1 members
	slots    []slot                // power of two, indexed by identifier
	last     uint16                // identifier given last
	count    uint64                // of the delivery begun last
	kept     map[uint16]retainedAs // of the deliveries in slots that a session of its own needs to know; nil: none
	due      []uint16              // identifiers of deliveries to be sent again, in their order
	resuming bool                  // more of them may come

	parked       []parked // from parkedHead on
	parkedHead   int
	parkedMember int // parked for members
	parkedBytes  int // parked for live feeds
	memberBytes  int // and for members

	hungry   []*feed // QoS 1 members that lack credit, longest first
	hungry0  []*feed // members whose deliveries need no acknowledgement
	holders  []*feed // members that may have credit, each once
	recalls  []grant // scratch of recall
	sizeHint int     // about how large deliveries are
}

// grant is credit for a member, or with a negative n credit taken from it.
type grant struct {
	to member
	n  int
}

// maxRecalls bounds the members whose credit is taken back at a time; what others
// deliver meanwhile is parked.
const maxRecalls = 256

func (w *window) init(quota int) { w.quota, w.sizeHint = quota, 16<<10 }

// open reports whether a QoS 1 packet may be sent now, ahead of nothing parked.
func (w *window) open() bool {
	return w.inFlight < w.quota && w.parkedHead == len(w.parked) && !w.behind()
}

// take gives a free packet identifier to a delivery. inFlight is below quota.
func (w *window) take(f *feed, qos byte, partition int32, offset int64) uint16 {
	if w.inFlight >= len(w.slots) {
		w.grow()
	}
	for {
		if w.last++; w.last == 0 {
			w.last = 1
		}
		if s := w.at(w.last); s.id == 0 {
			w.count++
			*s = slot{feed: f, id: w.last, qos: qos, count: w.count, partition: partition, offset: offset}
			w.inFlight++
			return w.last
		}
	}
}

func (w *window) grow() {
	old := w.slots
	w.slots = make([]slot, max(16, 2*len(old)))
	for _, s := range old {
		if s.id != 0 {
			*w.at(s.id) = s
		}
	}
}

// reserve makes a delivery of an earlier connection one of this one. Such come in
// their order, before any other.
func (w *window) reserve(d slot) {
	for len(w.slots) == 0 || w.at(d.id).id != 0 && w.at(d.id).id != d.id {
		w.grow() // ends: with 65,536 slots no two share one
	}
	if w.at(d.id).id != 0 {
		return
	}
	*w.at(d.id) = d
	w.inFlight++
	w.count, w.last = max(w.count, d.count), d.id
	if d.stage == due {
		w.due = append(w.due, d.id)
	}
}

// behind says that deliveries of an earlier connection come before any other.
func (w *window) behind() bool { return len(w.due) > 0 || w.resuming }

// nextDue returns the next delivery to be sent again, if the window has room for it:
// what is not sent again yet takes none. It counts as sent then.
func (w *window) nextDue() slot {
	if len(w.due) == 0 || w.inFlight-len(w.due) >= w.quota {
		return slot{}
	}
	e := w.get(w.due[0])
	w.begun(e)
	return *e
}

// begun makes a delivery that is due one that is sent.
func (w *window) begun(e *slot) {
	if e.stage != due {
		return
	}
	e.stage = sent
	if w.due[0] == e.id {
		w.due = w.due[1:]
	} else {
		w.due = slices.DeleteFunc(w.due, func(id uint16) bool { return id == e.id })
	}
	if len(w.due) == 0 {
		w.due = nil
	}
}

// again makes a delivery that nextDue returned the next one to be sent once more.
func (w *window) again(e *slot) {
	e.stage = due
	w.due = slices.Insert(w.due, 0, e.id)
}

// get returns the delivery with that identifier, or nil.
func (w *window) get(id uint16) *slot {
	if len(w.slots) == 0 || id == 0 {
		return nil
	}
	if e := w.at(id); e.id == id {
		return e
	}
	return nil
}

func (w *window) at(id uint16) *slot { return &w.slots[int(id)&(len(w.slots)-1)] }

// free ends the delivery with that identifier.
func (w *window) free(id uint16) (s slot, ok bool) {
	e := w.get(id)
	if e == nil {
		return slot{}, false
	}
	s = *e
	*e = slot{}
	w.inFlight--
	if w.kept != nil {
		delete(w.kept, id)
	}
	return s, true
}

// park keeps a delivery until a slot is free.
func (w *window) park(p parked) {
	w.parked = append(w.parked, p)
	if p.feed.counted() {
		w.parkedMember++
		w.memberBytes += len(p.bytes)
	} else {
		w.parkedBytes += len(p.bytes)
	}
}

// unpark returns the longest parked delivery if a slot is free.
func (w *window) unpark() (p parked, ok bool) {
	if w.parkedHead == len(w.parked) || w.inFlight >= w.quota || w.behind() {
		return parked{}, false
	}
	p = w.parked[w.parkedHead]
	w.parked[w.parkedHead] = parked{}
	w.parkedHead++
	if w.parkedHead == len(w.parked) {
		w.parked, w.parkedHead = w.parked[:0], 0
	} else if w.parkedHead >= 64 && w.parkedHead*2 >= len(w.parked) {
		n := copy(w.parked, w.parked[w.parkedHead:])
		clear(w.parked[n:])
		w.parked, w.parkedHead = w.parked[:n], 0
	}
	if p.feed.counted() {
		w.parkedMember--
		w.memberBytes -= len(p.bytes)
	} else {
		w.parkedBytes -= len(p.bytes)
	}
	return p, true
}

// unparkLost drops what is parked for a feed and not to be sent.
func (w *window) unparkLost(f *feed, lost func(partition int32, offset int64) bool) {
	rest := slices.DeleteFunc(w.parked[w.parkedHead:], func(p parked) bool {
		if p.feed != f || !lost(p.partition, p.offset) {
			return false
		}
		if f.counted() {
			w.parkedMember--
			w.memberBytes -= len(p.bytes)
		} else {
			w.parkedBytes -= len(p.bytes)
		}
		return true
	})
	w.parked = w.parked[:w.parkedHead+len(rest)]
}

// join makes a member eligible for credit.
func (w *window) join(f *feed) {
	if f.counted() {
		w.feeds++
	}
	w.starve(f)
}

// leave takes back the account of a member that has left.
func (w *window) leave(f *feed) {
	if f.counted() {
		w.feeds--
		w.credit -= f.credit
	}
	f.credit = 0
}

// delivered books one delivery to a member and notes its size in bytes.
func (w *window) delivered(f *feed, size int) {
	f.credit--
	if f.counted() {
		w.credit--
	}
	w.sizeHint = max(size, w.sizeHint-w.sizeHint/8, 64)
	if 2*f.credit <= w.target(f) {
		w.starve(f)
	}
}

// recall takes back credit that cannot be used: all of it once the window is
// full, else what exceeds f's target because deliveries have become larger. tight
// is as if the window were full for f. The result is valid until the next call.
func (w *window) recall(f *feed, tight bool) []grant {
	w.recalls = w.recalls[:0]
	if n := f.credit; n > 0 && !f.gone && (tight || n > 2*w.target(f)) {
		if !tight {
			n -= w.target(f)
		}
		w.revoke(f, n)
	}
	if w.inFlight+w.parkedMember < w.quota {
		return w.recalls
	}
	for n := len(w.holders); n > 0 && len(w.recalls) < maxRecalls; n-- {
		h := w.holders[n-1]
		w.holders[n-1] = nil
		w.holders = w.holders[:n-1]
		h.holds = false
		if h.credit > 0 && !h.gone {
			w.revoke(h, h.credit)
		}
	}
	return w.recalls
}

// hold lists a member that has credit.
func (w *window) hold(f *feed) {
	if f.holds {
		return
	}
	if len(w.holders) > 64+2*w.feeds {
		w.holders = slices.DeleteFunc(w.holders, func(h *feed) bool { return h.gone })
	}
	f.holds = true
	w.holders = append(w.holders, f)
}

// revoke books that a member loses credit.
func (w *window) revoke(f *feed, n int) {
	f.credit -= n
	if f.counted() {
		w.credit -= n
	}
	w.recalls = append(w.recalls, grant{f.member, -n})
	w.starve(f)
}

func (w *window) starve(f *feed) {
	if f.hungry || f.gone || f.shut {
		return
	}
	f.hungry = true
	if f.counted() {
		w.hungry = append(w.hungry, f)
	} else {
		w.hungry0 = append(w.hungry0, f)
	}
}

// target is the credit a member has when it is fed.
func (w *window) target(f *feed) int {
	bySize := max(1, creditBytes/w.sizeHint)
	if !f.counted() {
		return min(creditQoS0, bySize)
	}
	return min(max(1, w.quota/max(1, w.feeds)), bySize)
}

// grant returns the next member to be given credit, and how much, or nil.
func (w *window) grant() (*feed, int) {
	if w.behind() {
		return nil, 0
	}
	for len(w.hungry0) > 0 {
		f := pop(&w.hungry0)
		if n := w.target(f) - f.credit; n > 0 && !f.gone {
			f.credit += n
			return f, n
		}
	}
	// A full window opens with the next acknowledgement, and grants then.
	if w.inFlight+w.parkedMember >= w.quota && w.parkedBytes == 0 {
		return nil, 0
	}
	for range len(w.hungry) {
		f := pop(&w.hungry)
		want := w.target(f) - f.credit
		if f.gone || want <= 0 {
			continue
		}
		n := min(want, w.allowance(f))
		if n == 0 {
			w.starve(f) // stays in line
			continue
		}
		f.credit += n
		w.credit += n
		if w.hold(f); f.credit <= 0 {
			w.starve(f) // it has had more than was left to it
		}
		return f, n
	}
	return nil, 0
}

// allowance is how much credit a QoS 1 member may get now.
func (w *window) allowance(f *feed) int {
	if room := w.quota - w.inFlight - w.parkedMember - w.credit; room > 0 {
		return room
	}
	if f.credit > 0 || w.parkedMember >= w.quota {
		return 0
	}
	idle := w.credit > 0 && w.inFlight+w.parkedMember < w.quota
	if idle || w.parkedBytes > 0 {
		return max(1, min(creditExtra, w.quota/(2*max(1, w.feeds))))
	}
	return 0
}

// pop takes the first member off a line that is not empty.
func pop(line *[]*feed) *feed {
	f := (*line)[0]
	(*line)[0] = nil
	if *line = (*line)[1:]; len(*line) == 0 {
		*line = nil
	}
	f.hungry = false
	return f
}

// settlement is a run of deliveries with one outcome.
type settlement struct {
	feed        *feed
	refuse      bool
	partition   int32
	first, last int64
}

// extend joins a delivery to the run if it continues it.
func (r *settlement) extend(f *feed, refuse bool, partition int32, offset int64) bool {
	if r.feed != f || r.refuse != refuse || r.partition != partition || offset != r.last+1 {
		return false
	}
	r.last = offset
	return true
}

// frame is an encoded PUBLISH whose packet identifier and expiry are patched
// when it goes out.
type frame struct {
	bytes    []byte
	idAt     int // 0: QoS 0
	expiryAt int // 0: no Message Expiry Interval
}
