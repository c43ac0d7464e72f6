package kernel

import "time"

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
