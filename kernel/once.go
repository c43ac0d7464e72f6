package kernel

// Once names what a message is recognised by when it is published again, so that it
// is stored once: one use of a number that a session's client gives its messages, or
// an id, or both.
type Once struct {
	// Session is the session that the number belongs to, unique over all tenants
	// (SessionName). Empty: there is no number.
	Session string
	// Number is the client's, used again once it has been released.
	Number uint16
	// Count rises with every use of any number of the session. A use whose count is
	// not higher than that of one stored before is a repeat.
	Count uint64
	// Whole: all targets take the message or none, where one is full and rejects. So it
	// is with a Session, too.
	Whole bool
	// ID is looked up in each target by itself.
	ID DedupID
}

// IsZero says that a message is not recognised.
func (o *Once) IsZero() bool { return o.Session == "" && o.ID == DedupID{} }

// SessionName is the name under which data of a session is kept, unique over all
// tenants. Neither name contains a NUL.
func SessionName(tenant, clientID string) string { return tenant + "\x00" + clientID }
