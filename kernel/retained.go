package kernel

import (
	"slices"
	"strings"
	"time"
)

// Retained is a message that is retained under a name: the last one published
// there to be shown to later subscribers.
type Retained struct {
	Name   string
	Record Record // read-only
	// Version rises from message to message under a name. One that was written while
	// it was being read may have that of the one before.
	Version uint64
}

// Will is a message that a session leaves behind if its connection ends without
// a farewell.
type Will struct {
	Topic string
	// Record has neither timestamp nor expiry: both begin when it is published.
	Record Record
	Expiry time.Duration // 0 = never
	// Delay is how long it waits for the session to go on. It ends with the session.
	Delay time.Duration
	// Retain: it is retained, too.
	Retain bool
}

// Clone returns a copy that shares nothing with w.
func (w *Will) Clone() Will {
	c := *w
	c.Topic = strings.Clone(w.Topic)
	c.Record.Key, c.Record.Value = slices.Clone(w.Record.Key), slices.Clone(w.Record.Value)
	c.Record.Headers = nil // also of a record with none, as one that is read has it
	for _, h := range w.Record.Headers {
		c.Record.Headers = append(c.Record.Headers, Header{Key: strings.Clone(h.Key), Value: slices.Clone(h.Value)})
	}
	return c
}
