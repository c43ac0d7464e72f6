package forward

import (
	"time"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/broker"
	"github.com/trivium-mq/trivium/metasvc/codec"
)

func appendAttaching(b []byte, a *broker.Attaching) []byte {
	b = codec.AppendFlags(codec.AppendString(b, a.ClientID), a.Clean)
	b = codec.AppendUint(codec.AppendInt(b, int64(a.Expiry)), a.Epoch)
	var numbers []uint16
	if a.Epoch != 0 && a.Numbers != nil {
		numbers = a.Numbers()
	}
	return appendNumbers(b, numbers)
}

func (r *reader) attaching() broker.Attaching {
	a := broker.Attaching{ClientID: r.String(), Clean: r.flag(), Expiry: time.Duration(r.Int()), Epoch: r.Uint()}
	numbers := r.numbers(nil)
	a.Numbers = func() []uint16 { return numbers }
	return a
}

func appendSubscription(b []byte, s *kernel.Subscription) []byte {
	b = append(codec.AppendString(b, s.Filter), s.QoS, s.Options)
	return codec.AppendUint(b, uint64(s.Identifier))
}

func (r *reader) subscription() kernel.Subscription {
	return kernel.Subscription{Filter: r.String(), QoS: r.Byte(), Options: r.Byte(), Identifier: uint32(r.Uint())}
}

func appendState(b []byte, s *kernel.SessionState) []byte {
	b = codec.AppendInt(codec.AppendString(b, s.ClientID), int64(s.Expiry))
	if b = codec.AppendFlags(b, !s.ExpiresAt.IsZero()); !s.ExpiresAt.IsZero() {
		b = codec.AppendInt(b, s.ExpiresAt.UnixNano())
	}
	b = codec.AppendUint(b, uint64(len(s.Subscriptions)))
	for i := range s.Subscriptions {
		b = appendSubscription(b, &s.Subscriptions[i])
	}
	return b
}

func (r *reader) state() (s kernel.SessionState) {
	s.ClientID, s.Expiry = r.String(), time.Duration(r.Int())
	if r.flag() {
		s.ExpiresAt = time.Unix(0, r.Int())
	}
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		s.Subscriptions = append(s.Subscriptions, r.subscription())
	}
	return s
}

func appendPinID(b []byte, id kernel.PinID) []byte {
	return codec.AppendUint(codec.AppendUint(b, uint64(id.Number)), id.Count)
}

func (r *reader) pinID() kernel.PinID { return kernel.PinID{Number: r.number(), Count: r.Uint()} }

func appendPlace(b []byte, p kernel.Place) []byte {
	return codec.AppendInt(codec.AppendInt(b, int64(p.Partition)), p.Offset)
}

func (r *reader) place() kernel.Place {
	return kernel.Place{Partition: int32(r.int()), Offset: r.Int()}
}

// reading is a group and the subscription that reads it: many pins have the same.
type reading struct {
	group  kernel.GroupAddress
	filter string
}

// appendPins appends pins: what they are pinned in once each, and then them.
func appendPins(b []byte, list []broker.SessionPin) []byte {
	index := make(map[reading]int)
	var all []reading
	for i := range list {
		of := reading{list[i].Group, list[i].Filter}
		if _, known := index[of]; !known {
			index[of] = len(all)
			all = append(all, of)
		}
	}
	b = codec.AppendUint(b, uint64(len(all)))
	for i := range all {
		b = codec.AppendString(appendAddress(b, &all[i].group), all[i].filter)
	}
	b = codec.AppendUint(b, uint64(len(list)))
	for i := range list {
		p := &list[i]
		b = codec.AppendUint(b, uint64(index[reading{p.Group, p.Filter}]))
		b = codec.AppendFlags(appendPinID(b, p.PinID), p.Taken)
		b = appendPlace(b, kernel.Place{Partition: p.Partition, Offset: p.Offset})
	}
	return b
}

func (r *reader) pins() (list []broker.SessionPin) {
	var all []reading
	for range r.Count() {
		if r.Err() != nil {
			return nil
		}
		all = append(all, reading{r.address(), r.String()})
	}
	for range r.Count() {
		at := r.Uint()
		if r.Err() != nil || at >= uint64(len(all)) {
			r.Bytes(-1)
			return nil
		}
		p := broker.SessionPin{Filter: all[at].filter}
		p.Group, p.PinID, p.Taken = all[at].group, r.pinID(), r.flag()
		where := r.place()
		p.Partition, p.Offset = where.Partition, where.Offset
		list = append(list, p)
	}
	return list
}

func appendNumbers(b []byte, list []uint16) []byte {
	b = codec.AppendUint(b, uint64(len(list)))
	for _, n := range list {
		b = codec.AppendUint(b, uint64(n))
	}
	return b
}

// numbers reads numbers into a slice that is used again.
func (r *reader) numbers(to []uint16) []uint16 {
	to = to[:0]
	for range r.Count() {
		if r.Err() != nil {
			break
		}
		to = append(to, r.number())
	}
	return to
}
