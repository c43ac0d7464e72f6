package amqp

import (
	"github.com/trivium-mq/trivium/kernel"
)

// Tables implements broker.Tables for the header tables that AMQP stores. The
// zero value is ready; safe for concurrent use.
type Tables struct{}

// Fields implements broker.Tables.
func (Tables) Fields(table []byte) kernel.Fields { return &builder{fields: table} }

// Keys implements broker.Tables: those of CC. (BCC is not stored.)
func (Tables) Keys(table []byte) []string {
	var b builder
	if _, err := b.copies(table); err != nil {
		return nil // it has been checked when it came
	}
	return b.keys
}

// WithoutKeys implements broker.Tables.
func (Tables) WithoutKeys(table []byte) []byte {
	kept := keepFields(append([]byte(nil), table...), func(name, _ []byte) bool { return string(name) != headerCC })
	if len(kept) == 0 {
		return nil
	}
	return kept
}
