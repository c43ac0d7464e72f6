package route

import (
	"math"
	"strconv"
	"sync"

	"github.com/trivium-mq/trivium/kernel"
)

// picks is the bindings of an exchange of a dynamic type in a form that is
// quick to choose from. It is made when it is first needed, because many
// bindings usually come together.
type picks struct {
	once  sync.Once
	list  []*edge
	races []race
}

// race is the bindings of one weight.
type race struct {
	weight float64
	seeds  []uint64
	edges  []*edge
}

func (p *picks) make(e *exchange) {
	p.list = make([]*edge, 0, e.all.Len())
	e.all.Each(func(b *edge) { p.list = append(p.list, b) })
	if e.Type != kernel.ConsistentHash {
		return
	}
	at := make(map[uint32]int)
	for _, b := range p.list {
		i, ok := at[b.weight]
		if !ok {
			i = len(p.races)
			at[b.weight] = i
			p.races = append(p.races, race{weight: float64(b.weight)})
		}
		r := &p.races[i]
		r.seeds, r.edges = append(r.seeds, b.seed), append(r.edges, b)
	}
}

// pick calls fn for the bindings that an exchange of a dynamic type chooses.
func (e *exchange) pick(msg *Message, fn func(*edge)) {
	p := e.picks
	if p == nil {
		return // no binding yet
	}
	p.once.Do(func() { p.make(e) })
	n := uint64(len(p.list))
	if n == 0 {
		return
	}
	switch e.Type {
	case kernel.Headers:
		fields := msg.fields()
		for _, b := range p.list {
			if b.match.matches(fields) {
				fn(b)
			}
		}
	case kernel.ConsistentHash:
		fn(p.winner(e.hash(msg)))
	case kernel.ModulusHash:
		fn(p.list[hashText(msg.Key)%n])
	default:
		fn(p.list[mix(msg.Draw^hashText(e.Name))%n])
	}
}

// winner chooses by weighted rendezvous hashing: every binding draws a number
// from the hash and its own seed, and the best wins. So it depends on nothing
// but the bindings that are there, a binding gets exactly its share, and one
// that comes or goes moves only what it wins or had won.
func (p *picks) winner(hash uint64) (best *edge) {
	least := math.Inf(1)
	for i := range p.races {
		r := &p.races[i]
		top, at := uint64(0), 0
		for j, seed := range r.seeds {
			if u := mix(hash ^ seed); u >= top {
				top, at = u, j
			}
		}
		// Of exponential draws with the weights as rates each is the least with a
		// probability in proportion to its weight; within one weight the highest
		// number has it.
		u := (float64(top>>11) + 0.5) / (1 << 53)
		if score := -math.Log(u) / r.weight; score < least || best == nil {
			least, best = score, r.edges[at]
		}
	}
	return best
}

// hash is the hash of what a consistent hash exchange goes by.
func (e *exchange) hash(msg *Message) uint64 {
	if name := e.Text(kernel.ArgHashHeader); name != "" {
		f := find(msg.fields(), name)
		if f == nil {
			return 0
		}
		return mix(hashText(f.Text) ^ f.Bits)
	}
	if name, ok := hashProperties[e.Text(kernel.ArgHashProperty)]; ok {
		for i := range msg.Record.Headers {
			if h := &msg.Record.Headers[i]; h.Key == name {
				return hashText(h.Value)
			}
		}
		return 0
	}
	return hashText(msg.Key)
}

// hashProperties are the values of ArgHashProperty.
var hashProperties = map[string]string{
	"message_id": kernel.HeaderMessageID, "correlation_id": kernel.HeaderCorrelationID, "timestamp": kernel.HeaderTimestamp,
}

// weightOf reads a binding key as a weight; one below 1 is none.
func weightOf(key string) (n int64, ok bool) {
	n, err := strconv.ParseInt(key, 10, 64)
	return n, err == nil && n <= math.MaxUint32
}

// hashText is FNV-1a, finished so that all bits of it are good. What it gives
// must stay the same for ever: it decides which queue a key belongs to.
func hashText[T string | []byte](s T) uint64 {
	h := uint64(0xcbf29ce484222325)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 0x100000001b3
	}
	return mix(h)
}

// mix is the finisher of MurmurHash3.
func mix(h uint64) uint64 {
	h = (h ^ h>>33) * 0xff51afd7ed558ccd
	h = (h ^ h>>33) * 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}
