package mqtt

import (
	"encoding/binary"
	"errors"
)

// remains are what a connection leaves for the next one of its session, as a text: the
// two may be at different nodes, of different versions.
type remains struct {
	slots    []keptSlot
	retained []keptRetained
	last     uint16
	count    uint64
}

type keptSlot struct {
	slot   // without its feed
	filter string
}

const (
	// keptVersion begins a text.
	keptVersion = 1
	// maxKept bounds a text in bytes. Deliveries that find no room are redelivered by
	// their groups, under new identifiers.
	maxKept = 1 << 20
)

var errKept = errors.New("malformed text of an earlier connection")

// append encodes: the filters, each once, then the deliveries, as far as there is room.
func (k *remains) append(b []byte) []byte {
	b = append(b, keptVersion)
	b = binary.AppendUvarint(b, uint64(k.last))
	b = binary.AppendUvarint(b, k.count)
	index := make(map[string]int)
	var filters []string
	number := func(filter string) uint64 {
		i, ok := index[filter]
		if !ok {
			i = len(filters)
			index[filter], filters = i, append(filters, filter)
		}
		return uint64(i)
	}
	var slots []byte
	n, size := 0, 0
	for i := range k.retained {
		r := &k.retained[i]
		if size += len(r.filter) + len(r.as.name) + maxSlotText; size > maxKept {
			break
		}
		slots = r.append(append(slots, 1), number(r.filter))
		slots = appendText(slots, r.as.name)
		slots = binary.AppendUvarint(slots, r.as.version)
		slots = binary.AppendUvarint(slots, uint64(r.identifier))
		n++
	}
	for i := range k.slots {
		s := &k.slots[i]
		if size += len(s.filter) + maxSlotText; size > maxKept {
			break
		}
		slots = s.append(append(slots, 0), number(s.filter))
		n++
	}
	b = binary.AppendUvarint(b, uint64(len(filters)))
	for _, f := range filters {
		b = appendText(b, f)
	}
	return append(binary.AppendUvarint(b, uint64(n)), slots...)
}

// maxSlotText bounds the numbers of a delivery, in bytes.
const maxSlotText = 64

// append encodes a delivery; filter is the number of its filter.
func (s *keptSlot) append(b []byte, filter uint64) []byte {
	b = binary.AppendUvarint(b, filter)
	b = binary.AppendUvarint(b, uint64(s.id))
	pinned := byte(0)
	if s.pinned {
		pinned = 1
	}
	b = append(b, s.qos, byte(s.stage), pinned)
	b = binary.AppendUvarint(b, s.count)
	b = binary.AppendUvarint(b, uint64(uint32(s.partition)))
	return binary.AppendUvarint(b, uint64(s.offset))
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// readRemains decodes a text; it keeps nothing of it. An empty one is nil.
func readRemains(b []byte) (*remains, error) {
	if len(b) == 0 {
		return nil, nil
	}
	r := keptReader{rest: b}
	if r.byte() != keptVersion {
		return nil, errKept
	}
	k := &remains{last: uint16(r.number(1<<16 - 1)), count: r.number(1<<64 - 1)}
	filters := make([]string, r.number(uint64(len(r.rest))))
	for i := range filters {
		filters[i] = r.text()
	}
	for n := r.number(uint64(len(r.rest))); n > 0 && r.err == nil; n-- {
		kind, s := r.byte(), r.slot(filters)
		switch kind {
		case 0:
			k.slots = append(k.slots, s)
		case 1:
			as := retainedAs{r.text(), r.number(1<<64 - 1)}
			k.retained = append(k.retained, keptRetained{s, as, uint32(r.number(1<<32 - 1))})
		default:
			r.err = errKept
		}
	}
	if r.err == nil && len(r.rest) > 0 {
		r.err = errKept
	}
	return k, r.err
}

// keptReader reads a text; after an error all that it reads is zero.
type keptReader struct {
	rest []byte
	err  error
}

func (r *keptReader) fail() { r.rest, r.err = nil, errKept }

func (r *keptReader) byte() byte {
	if len(r.rest) == 0 {
		r.fail()
		return 0
	}
	b := r.rest[0]
	r.rest = r.rest[1:]
	return b
}

// number reads one that is not above most.
func (r *keptReader) number(most uint64) uint64 {
	v, n := binary.Uvarint(r.rest)
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.rest = r.rest[n:]
	return v
}

func (r *keptReader) text() string {
	n := r.number(uint64(len(r.rest)))
	s := string(r.rest[:min(n, uint64(len(r.rest)))])
	r.rest = r.rest[min(n, uint64(len(r.rest))):]
	return s
}

func (r *keptReader) slot(filters []string) (s keptSlot) {
	if i := r.number(1<<64 - 1); i < uint64(len(filters)) {
		s.filter = filters[i]
	} else {
		r.fail()
	}
	s.id = uint16(r.number(1<<16 - 1))
	s.qos, s.stage = r.byte(), stage(r.byte())
	pinned := r.byte()
	s.pinned = pinned == 1
	s.count = r.number(1<<64 - 1)
	s.partition, s.offset = int32(r.number(1<<32-1)), int64(r.number(1<<63-1))
	if s.id == 0 || s.qos < 1 || s.qos > 2 || s.stage > taken || pinned > 1 {
		r.fail()
	}
	return s
}
