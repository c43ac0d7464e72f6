package placement

import (
	"bufio"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/metasvc/raftgroup"
	slog "github.com/trivium-mq/trivium/storage/log"
	"github.com/trivium-mq/trivium/storage/record"
)

// machine is the replicated state machine: it reads nothing but the entries,
// calls no adapter and does no I/O. mu is held during Apply, and by the sealer
// when it installs a segment, which makes them one writer of the log.
type machine struct {
	mu    sync.Mutex
	log   *slog.Log
	shown atomic.Pointer[slog.Log] // log, for those who do not hold mu
	// open opens the log as of the last manifest; the others are of checkpoints
	// that are kept.
	open func(alone bool, kept ...*slog.Manifest) (*slog.Log, error)
	// loadKeys replaces the keyed state by that of a checkpoint at index, of which
	// the reader has what follows the state.
	loadKeys func(sv *saved, rest *bufio.Reader, index uint64) error
	table

	nextPartition PartitionID
	nextGroup     GroupID
	producers     producers
	ledgers       ledgers
	ids           idWindows
	index         uint64 // of the entry applied last
	term          uint64
	time          int64 // of the entries, made monotonic
	sinceSeal     atomic.Int64
	nextSeal      int64
	sealDue       bool // by a command of the entry that is being applied
	mergeDue      []uint64

	prop      *proposer
	out       *completer
	shards    []*shard
	sealer    *sealer // nil: nothing is sealed
	puller    *puller // likewise
	sealBytes int64
	metrics   *Metrics
	fail      func(error)
	broken    bool
	present   present

	// Of the Apply that is running.
	reader  entryReader
	once    kernel.Once // of the next batch, see repeated
	entry   raftgroup.Entry
	body    *slog.Body
	flight  *flight
	touched []*partition
	events  [][]event // by shard
	landed  []errand
}

func newMachine(shards []*shard, metrics *Metrics) *machine {
	m := &machine{table: newTable(), nextPartition: 1, nextGroup: 1, shards: shards, metrics: metrics, ledgers: make(ledgers)}
	m.producers.init()
	m.ids.init()
	m.events = make([][]event, len(shards))
	return m
}

// Apply applies committed entries: offsets are given here, and nowhere else.
func (m *machine) Apply(entries []raftgroup.Entry) {
	m.mu.Lock()
	for i := range entries {
		if m.broken {
			break
		}
		if err := m.applyEntry(entries[i]); err != nil {
			m.broken = true
			if m.flight != nil { // nobody else answers it any more
				m.flight.err = errUnknown
				m.land()
			}
			m.fail(fmt.Errorf("placement: apply entry %d: %w", entries[i].Index, err))
		}
	}
	m.post()
	seal := m.sealer != nil && m.sinceSeal.Load() >= m.nextSeal
	if seal {
		m.nextSeal += m.sealBytes / 4 // in case that the command gets lost
	}
	m.mu.Unlock()
	if seal {
		m.prop.command(sealCommand()) //nolint:errcheck // a later Apply asks again
	}
	m.prop.seal()
}

func (m *machine) applyEntry(e raftgroup.Entry) error {
	r := &m.reader
	if err := r.reset(e.Data); err != nil {
		return err
	}
	if e.Term > m.term {
		m.term = e.Term
		m.prop.reached(e.Term)
	}
	m.entry, m.index, m.body, m.flight = e, e.Index, nil, nil
	m.time = max(m.time, r.time)
	if wallClock {
		m.time = m.prop.clock.wall()
	}
	m.ids.sweep(m.time)
	if r.boot == m.prop.boot {
		m.flight = m.prop.applied(r.counter)
	}
	m.metrics.Entries.Add(1)
	m.metrics.Bytes.Add(uint64(len(e.Data)))
	m.sinceSeal.Add(int64(len(e.Data)))
	for r.next() {
		if err := m.applySection(&r.section); err != nil {
			return err
		}
	}
	if r.err != nil {
		return r.err
	}
	if m.flight != nil {
		m.land()
	}
	switch merge := m.mergeDue; {
	case m.sealDue:
		m.seal() // as of the whole entry: replay goes on with the next one
	case merge != nil:
		m.startMerge(merge)
	}
	m.sealDue, m.mergeDue = false, nil
	return nil
}

// land has the flight of the entry answered.
func (m *machine) land() {
	m.flight.index = m.entry.Index
	m.landed = append(m.landed, errand{flight: m.flight})
	m.flight = nil
}

func (m *machine) applySection(s *section) error {
	switch s.kind {
	case sectionOnce:
		s.once.ID = m.once.ID
		m.once = s.once
		return checkOnce(&s.once)
	case sectionID:
		m.once.ID = s.once.ID
	case sectionBatch:
		return m.applyBatch(s)
	case sectionSettlement:
		if m.reader.term != m.entry.Term && !staleSettlements {
			return nil // made under another leadership: its overlay is gone
		}
		g, p := m.groups[s.group], m.parts[s.partition]
		if g != nil && p != nil && p.topic == g.topic {
			m.tell(g.topic.shard, event{kind: evSettled, share: g, part: p, data: s.body})
		}
	case sectionTrim:
		if p := m.parts[s.partition]; p != nil && m.reader.term == m.entry.Term {
			p.log.Trim(s.start)
			p.age.trim(s.start)
			m.tell(p.topic.shard, event{kind: evTrimmed, part: p, n: p.log.Start()})
		}
	case sectionCommand:
		if m.outdated(s.body) {
			m.answer(commandResult{})
			return nil
		}
		return m.applyCommand(s.body)
	}
	return nil
}

// applyBatch gives a batch its offsets in each of its targets. Targets that do
// not exist (any more) discard it.
func (m *machine) applyBatch(s *section) error {
	if err := checkBatch(s.body); err != nil {
		return fmt.Errorf("%w: %w", errFormat, err)
	}
	res := batchResult{base: -1}
	name := m.once.ID
	if m.repeated() {
		s.targets = s.targets[:0]
	}
	for _, id := range s.targets {
		p := m.parts[id]
		if p == nil || name != (kernel.DedupID{}) && m.known(p, name) {
			continue
		}
		base := p.log.End()
		duplicate := false
		if record.ProducerID(s.body) >= 0 {
			base, duplicate, res.err = m.producers.check(id, s.body, base)
		}
		if res.err != nil {
			continue
		}
		if !duplicate {
			m.link(p, base, s)
		}
		if len(s.targets) == 1 {
			res.base = base
		}
	}
	if m.flight != nil {
		m.flight.results = append(m.flight.results, res)
	}
	return nil
}

// checkBatch says whether bytes may be linked into the log as one batch.
func checkBatch(b []byte) error {
	_, rest, err := record.Split(b)
	switch {
	case err != nil:
		return err
	case len(rest) > 0 || record.LastOffsetDelta(b) < 0 || record.Count(b) < 0:
		return record.ErrInvalid
	}
	return nil
}

// link puts a batch at the end of a partition.
func (m *machine) link(p *partition, base int64, s *section) {
	if m.body == nil {
		m.body = m.log.NewBody(m.entry.Index, int32(m.entry.Term), m.entry.Data)
	}
	delta := record.LastOffsetDelta(s.body)
	if p.retention.Age > 0 { // first: who sees the records knows how young they are
		p.age.append(m.time, base, p.retention.Age)
	}
	p.arrivals.append(m.time, base)
	if record.Attributes(s.body)&record.AttrExpiring != 0 {
		p.expiring = base + int64(delta) + 1
	}
	p.log.Link(base, m.body, s.off, len(s.body), delta, record.MaxTimestamp(s.body))
	count := uint64(record.Count(s.body))
	p.topic.published.Add(count)
	p.topic.ends.Add(int64(delta) + 1)
	if p.topic.tally.on.Load() {
		p.topic.tally.add(p, s.body, base+int64(delta)+1)
	}
	m.metrics.Records.Add(count)
	if !p.touched {
		p.touched = true
		m.touched = append(m.touched, p)
	}
}

// tell adds an event for a shard.
func (m *machine) tell(s *shard, e event) {
	m.events[s.index] = append(m.events[s.index], e)
}

// maxEvents is how large a list of events is kept for the next Apply: that of a start
// has some for every topic.
const maxEvents = 1 << 12

// post hands each shard its events and the completer the flights, once per
// Apply.
func (m *machine) post() {
	for _, p := range m.touched {
		p.touched = false
		m.tell(p.topic.shard, event{kind: evExtended, part: p, n: p.expiring})
	}
	clear(m.touched)
	m.touched = m.touched[:0]
	for i, list := range m.events {
		m.shards[i].post(list)
		clear(list)
		if m.events[i] = list[:0]; cap(list) > maxEvents {
			m.events[i] = nil
		}
	}
	m.out.box.post(m.landed...)
	clear(m.landed)
	m.landed = m.landed[:0]
	m.body, m.entry, m.flight = nil, raftgroup.Entry{}, nil
}

// answer gives the result of a command to who waits for it.
func (m *machine) answer(res commandResult) {
	if m.flight != nil {
		m.flight.answers = append(m.flight.answers, res)
	}
}

// writeKeyed has keyed state written before the entry's answers go out.
func (m *machine) writeKeyed(puts []byte) {
	f := m.flight
	if f == nil {
		f = &flight{index: m.entry.Index}
		m.landed = append(m.landed, errand{flight: f})
	}
	f.keyed = append(f.keyed, puts)
}
