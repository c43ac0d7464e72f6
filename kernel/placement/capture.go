package placement

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync/atomic"

	"github.com/trivium-mq/trivium/sharegroup"
	slog "github.com/trivium-mq/trivium/storage/log"
)

// A checkpoint's payload is the state of the machine and of all windows as of
// a seal, the manifest of the log, and the files with the keyed state:
// docs/formats/entry.md.
const (
	stateVersion  = 3
	chainVersion  = 3 // from which on the keyed state is in files of its own
	oldestVersion = 2 // that can be read
)

// capture is a seal on its way to a checkpoint.
type capture struct {
	index   uint64
	bytes   int64 // of log since the seal before
	plan    *slog.Plan
	machine *frozen
	windows [][]windowState
	merge   bool         // no checkpoint, only the plan
	ids     []uint64     // of the segments to be merged
	left    atomic.Int32 // who has not added its part yet
	ready   func(*capture)
}

// windowState is the durable layer of one window.
type windowState struct {
	group GroupID
	part  PartitionID
	data  []byte
}

// seal freezes the state as of this place in the log. Each shard and the
// completer add their part when they have come to the same place.
func (m *machine) seal() {
	bytes := m.sinceSeal.Swap(0)
	m.nextSeal = m.sealBytes
	if m.sealer == nil {
		return
	}
	c := &capture{
		index: m.entry.Index, bytes: bytes, plan: m.log.Capture(m.entry.Index), machine: m.freeze(),
		windows: make([][]windowState, len(m.shards)), ready: m.sealer.post,
	}
	c.left.Store(int32(len(m.shards)) + 1)
	for _, s := range m.shards {
		m.tell(s, event{kind: evCapture, capture: c})
	}
	m.landed = append(m.landed, errand{call: c.added})
}

// added is called by each contributor; the last one hands the capture on.
func (c *capture) added() {
	if c.left.Add(-1) == 0 {
		c.ready(c)
	}
}

// capture adds the durable windows of a shard.
func (s *shard) capture(c *capture) {
	c.windows[s.index] = s.durable()
	c.added()
}

// durable copies the durable windows. Their bytes lie in few large slices, since there
// may be very many.
func (s *shard) durable() []windowState {
	var list []windowState
	var buf []byte
	for _, t := range s.topics {
		for _, sh := range t.lane.shares {
			for _, w := range sh.windows {
				if cap(buf)-len(buf) < windowRoom {
					buf = make([]byte, 0, windowChunk)
				}
				from := len(buf)
				buf = w.AppendTo(buf)
				list = append(list, windowState{sh.id, w.part.id, buf[from:len(buf):len(buf)]})
			}
		}
	}
	return list
}

// How windows are gathered: a large one may leave the slice for one of its own.
const (
	windowChunk = 64 << 10
	windowRoom  = 256
)

// write writes the checkpoint's payload, whose keyed state is in the files of the
// chain. The plan has been installed.
func (c *capture) write(w io.Writer, chain keyChain) error {
	manifest, err := c.plan.Manifest()
	if err != nil {
		return err
	}
	machine, log := c.machine.appendTo(nil), manifest.Append(nil)
	begin := binary.AppendUvarint(nil, uint64(len(machine)))
	middle, windows := appendBytes(nil, log), c.appendWindows(nil)
	size := len(begin) + len(machine) + len(middle) + len(windows)
	begin = append(binary.AppendUvarint([]byte{stateVersion}, uint64(size)), begin...)
	for _, b := range [][]byte{begin, machine, middle, windows, chain.appendTo(nil)} {
		if _, err := w.Write(b); err != nil {
			return err
		}
	}
	return nil
}

func (c *capture) appendWindows(b []byte) []byte {
	all := slices.Concat(c.windows...)
	slices.SortFunc(all, func(a, b windowState) int {
		return cmp.Or(cmp.Compare(a.group, b.group), cmp.Compare(a.part, b.part))
	})
	n := 0
	for i := range all {
		n += len(all[i].data) + 3*binary.MaxVarintLen32
	}
	b = binary.AppendUvarint(slices.Grow(b, n), uint64(len(all)))
	for _, w := range all {
		b = binary.AppendUvarint(b, uint64(w.group))
		b = binary.AppendUvarint(b, uint64(w.part))
		b = appendBytes(b, w.data)
	}
	return b
}

// appendTo encodes the machine's tables; equal machines give equal bytes.
func (m *machine) appendTo(b []byte) []byte { return m.freeze().appendTo(b) }

// Parts of the machine's state after the producers: a kind byte, numbered as the
// commands are, and bytes. A checkpoint of an earlier release has none.
const (
	partLimits  = 10
	partLedgers = 20
	partPins    = 21
	partIDs     = 40
)

// decodeParts reads them.
func (m *machine) decodeParts(d *decoder) {
	for len(d.b) > 0 && d.err == nil {
		kind := d.byte()
		part := &decoder{b: d.bytes()}
		switch kind {
		case partLimits:
			m.decodeLimits(part)
		case partLedgers:
			m.ledgers.decode(part)
		case partPins:
			m.decodePins(part)
		case partIDs:
			m.decodeIDs(part)
		default:
			d.fail(fmt.Sprintf("part %d of the state", kind))
		}
		if part.err != nil || len(part.b) > 0 {
			d.fail(fmt.Sprintf("malformed part %d of the state", kind))
		}
	}
}

// saved is a checkpoint's payload as read, without the keyed state.
type saved struct {
	machine  []byte
	manifest *slog.Manifest
	windows  []windowState
	inline   bool     // the keyed state follows in the old way
	chain    keyChain // else these files have it
}

func decodeSaved(b []byte) (*saved, error) {
	d := decoder{b: b}
	sv := &saved{machine: d.bytes()}
	manifest := d.bytes()
	for n := d.count(3); n > 0 && d.err == nil; n-- {
		sv.windows = append(sv.windows, windowState{GroupID(d.uvarint()), PartitionID(d.uvarint()), d.bytes()})
	}
	if d.err != nil {
		return nil, d.err
	}
	m, rest, err := slog.DecodeManifest(manifest)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("%w: %d bytes after the manifest", errFormat, len(rest))
	}
	sv.manifest = m
	return sv, err
}

// restore fills an empty machine, whose log is open on the same manifest, and
// tells the shards.
func (m *machine) restore(sv *saved) error {
	m.prop.skip()
	if sv.machine == nil {
		return nil // nothing was ever saved
	}
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	d := &decoder{b: sv.machine}
	m.time = d.varint()
	m.nextPartition, m.nextGroup = PartitionID(d.uvarint()), GroupID(d.uvarint())
	for n := d.count(16); n > 0 && d.err == nil; n-- {
		m.decodeTopic(d)
	}
	m.producers.decode(d)
	m.decodeParts(d)
	if d.err != nil {
		return d.err
	}
	for _, ws := range sv.windows {
		g, p := m.groups[ws.group], m.parts[ws.part]
		if g == nil || p == nil {
			return fmt.Errorf("%w: window of group %d on partition %d", errFormat, ws.group, ws.part)
		}
		w, rest, err := sharegroup.Decode(ws.data)
		if err != nil || len(rest) > 0 {
			return fmt.Errorf("%w: window of group %d: %w", errFormat, ws.group, err)
		}
		m.addWindow(g, p, w)
	}
	m.post()
	return nil
}

func (m *machine) decodeTopic(d *decoder) {
	t := &topic{id: d.topicID(), revision: d.uvarint()}
	for n := d.count(6); n > 0 && d.err == nil; n-- {
		id, spec := PartitionID(d.uvarint()), PartitionSpec{Index: int32(d.int(1<<31 - 1)), Retention: d.retention()}
		if t.shard == nil {
			t.shard = m.shards[uint64(id)%uint64(len(m.shards))]
		}
		if d.err != nil || m.log.Partition(uint64(id)) == nil {
			d.fail("partition that the manifest does not have")
			return
		}
		p := m.addPartition(t, id, spec)
		p.age.decode(d)
		t.ends.Add(p.log.End())
	}
	if t.shard == nil {
		t.shard = m.shards[0]
	}
	m.topics[t.id] = t
	for n := d.count(20); n > 0 && d.err == nil; n-- {
		id, revision := GroupID(d.uvarint()), d.uvarint()
		spec := d.groupSpec()
		if d.err == nil {
			m.addGroup(t, id, spec, revision)
		}
	}
}
