package broker

import (
	"math/rand/v2"

	"github.com/trivium-mq/trivium/kernel"
	"github.com/trivium-mq/trivium/kernel/route"
)

// Tables reads the typed header tables that a front-end stores with its records
// (kernel.HeaderTable): what dies is routed again by what it was published with.
// The tables it is given are the front-end's own, unchanged. It must be safe for
// concurrent use; what it returns may alias the table.
type Tables interface {
	// Fields gives the headers of a table.
	Fields(table []byte) kernel.Fields
	// Keys returns the routing keys in it, beyond the record's own.
	Keys(table []byte) []string
	// WithoutKeys returns it without those keys, nil when nothing is left.
	WithoutKeys(table []byte) []byte
}

// noTables is Tables of a broker whose front-ends store none: what it finds in the
// log it leaves alone.
type noTables struct{}

func (noTables) Fields([]byte) kernel.Fields     { return nil }
func (noTables) Keys([]byte) []string            { return nil }
func (noTables) WithoutKeys(table []byte) []byte { return table }

// deadFields are the headers of a dead letter: those of its table, and what the
// broker says of its first and its last death.
type deadFields struct {
	of    kernel.Fields
	death []kernel.Header
}

// AppendFields implements kernel.Fields.
func (d *deadFields) AppendFields(dst []kernel.Field) []kernel.Field {
	start := len(dst)
	dst = d.of.AppendFields(dst)
	kept := dst[:start]
	for _, f := range dst[start:] {
		if !kernel.IsDeathHeader(f.Name) { // its publisher's words
			kept = append(kept, f)
		}
	}
	for i := range d.death {
		if h := &d.death[i]; h.Key != kernel.HeaderDeath && kernel.IsDeathHeader(h.Key) {
			kept = append(kept, kernel.Field{Name: h.Key, Kind: kernel.FieldText, Text: string(h.Value)})
		}
	}
	return kept
}

// route matches a dead letter: with all of its keys and its typed headers.
func (l *letter) route(b *Broker, table *route.Table) (m route.Match, ok bool) {
	msg := route.Message{Key: l.key, More: l.more, Record: &l.record, Draw: rand.Uint64()}
	if l.table != nil {
		if of := b.tables.Fields(l.table); of != nil {
			msg.Fields = &deadFields{of: of, death: l.record.Headers}
		}
	}
	ok = table.Route(&m, l.exchange, &msg)
	return m, ok
}
